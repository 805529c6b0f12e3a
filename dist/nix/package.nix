# SPDX-License-Identifier: GPL-2.0-only
# Builds the checkout that this file is in: pkgs.callPackage ./dist/nix/package.nix { }
{
  lib,
  rustPlatform,
  llvmPackages,
  installShellFiles,
  pkg-config,
  elfutils,
  zlib,
  zstd,
}:

rustPlatform.buildRustPackage {
  pname = "scx_magpie";
  inherit ((lib.importTOML ../../Cargo.toml).package) version;

  src = lib.cleanSource ../..;
  cargoLock.lockFile = ../../Cargo.lock;

  nativeBuildInputs = [
    installShellFiles
    pkg-config
    rustPlatform.bindgenHook
  ];
  buildInputs = [
    elfutils
    zlib
    zstd # which libelf's pkg-config file names
  ];

  env.BPF_CLANG = lib.getExe llvmPackages.clang;
  # clang's wrapper would pass their flags for BPF programs, too.
  hardeningDisable = [
    "stackprotector"
    "zerocallusedregs"
  ];

  # They read the machine's topology, which a build does not see. `make test` runs them.
  doCheck = false;

  # The command writes its manual pages and completions.
  postInstall = ''
    $out/bin/scx_magpie man man
    installManPage man/*
    for shell in bash fish zsh; do
      $out/bin/scx_magpie completions $shell >scx_magpie.$shell
    done
    installShellCompletion scx_magpie.{bash,fish,zsh}
    install -Dm644 -t $out/lib/systemd/system dist/scx_magpie{,-export}.service
    substituteInPlace $out/lib/systemd/system/*.service --replace-fail /usr/bin/ $out/bin/
    install -Dm644 -t $out/share/scx_magpie dist/{grafana-dashboard.json,prometheus-rules.yml}
  '';

  meta = {
    inherit ((lib.importTOML ../../Cargo.toml).package) description;
    license = lib.licenses.gpl2Only;
    mainProgram = "scx_magpie";
    platforms = [
      "x86_64-linux"
      "aarch64-linux"
    ];
  };
}
