# SPDX-License-Identifier: GPL-2.0-only
# A stub of what dist/nix uses of nixpkgs, for tests without it. It knows names and types, and
# nothing of the packages themselves: to "build" scx_magpie it takes the command that was built
# (`program`), and runs postInstall.
{ program }:

let
  shell = "/bin/bash"; # the host's, as there is no sandbox
  derive =
    name: env: script:
    derivation (
      {
        inherit name;
        system = builtins.currentSystem;
        builder = shell;
        PATH = builtins.getEnv "PATH";
        args = [
          "-euc"
          # Without "exit" the last command is the builder, which Nix kills when it closes its output.
          "${script}\nexit"
        ];
      }
      // env
    );

  lib = rec {
    cleanSource = path: path;
    importTOML = path: builtins.fromTOML (builtins.readFile path);
    getExe = package: "${package}/bin/${package.meta.mainProgram}";
    licenses.gpl2Only = "GPL-2.0-only";
    literalExpression = text: text;
    versionAtLeast = a: b: builtins.compareVersions a b >= 0;

    mkOption = option: { isOption = true; } // option;
    mkEnableOption =
      what:
      mkOption {
        type = types.bool;
        default = false;
        description = "Whether to enable ${what}.";
      };
    mkIf = condition: content: { inherit condition content; };
    mkMerge = contents: { inherit contents; };
    types = {
      bool = builtins.isBool;
      str = builtins.isString;
      package = value: value ? outPath && value.meta ? mainProgram;
    };
  };

  # A table of scalars and lists of them is the same in TOML.
  toml = settings: map (key: "${key} = ${builtins.toJSON settings.${key}}\n") (builtins.attrNames settings);

  pkgs = rec {
    stdenv.buildPlatform.canExecute = platform: platform == stdenv.hostPlatform;
    stdenv.hostPlatform = builtins.currentSystem;

    formats.toml = { }: {
      type = builtins.isAttrs;
      generate = name: settings: builtins.toFile name (builtins.concatStringsSep "" (toml settings));
    };
    runCommand = derive;
    callPackage =
      file: overrides:
      let
        function = import file;
        wanted = builtins.intersectAttrs (builtins.functionArgs function) (available // overrides);
      in
      function wanted;

    available = {
      inherit lib;
      llvmPackages.clang = {
        outPath = "clang";
        meta.mainProgram = "clang";
      };
      installShellFiles = "installShellFiles";
      pkg-config = "pkg-config";
      elfutils = "elfutils";
      zlib = "zlib";
      zstd = "zstd";
      rustPlatform.bindgenHook = "bindgenHook";
      rustPlatform.buildRustPackage =
        {
          pname,
          version,
          src,
          cargoLock,
          nativeBuildInputs,
          buildInputs,
          env,
          hardeningDisable,
          doCheck,
          postInstall,
          meta,
        }:
        assert builtins.pathExists cargoLock.lockFile;
        derive "${pname}-${version}" { dist = "${src + "/dist"}"; } ''
          installManPage() { install -Dm644 -t "$out/share/man" "$@"; }
          installShellCompletion() { install -Dm644 -t "$out/share/completions" "$@"; }
          substituteInPlace() {
            local files=()
            while [ "$1" != --replace-fail ]; do files+=("$1"); shift; done
            grep -LF "$2" "''${files[@]}" | grep . && exit 1
            sed -i "s|$2|$3|g" "''${files[@]}"
          }
          work=$(mktemp -d); cd "$work"
          ln -s "$dist" dist
          install -Dm755 ${program} "$out/bin/scx_magpie"
          ${postInstall}
          rm -rf "$work"
        ''
        // {
          inherit meta;
        };
    };
  };
in
{
  inherit lib pkgs;
}
