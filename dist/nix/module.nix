# SPDX-License-Identifier: GPL-2.0-only
# A module for NixOS: imports = [ ./scx_magpie/dist/nix/module.nix ];
{
  config,
  lib,
  pkgs,
  ...
}:

let
  cfg = config.services.scx_magpie;
  format = pkgs.formats.toml { };
  settings = format.generate "scx_magpie.toml" cfg.settings;
  # A wrong key or value ends the build of the system, not the start of the service.
  checked = pkgs.runCommand "scx_magpie.toml" { } ''
    ${lib.getExe cfg.package} --config ${settings} config --check >/dev/null
    cp ${settings} $out
  '';
  # A build for another architecture cannot run the command.
  file = if pkgs.stdenv.buildPlatform.canExecute pkgs.stdenv.hostPlatform then checked else settings;
in
{
  options.services.scx_magpie = {
    enable = lib.mkEnableOption "scx_magpie, a sched_ext scheduler";

    package = lib.mkOption {
      type = lib.types.package;
      default = pkgs.callPackage ./package.nix { };
      defaultText = lib.literalExpression "pkgs.callPackage ./package.nix { }";
      description = "The package of scx_magpie.";
    };

    settings = lib.mkOption {
      type = format.type;
      default = { };
      example = {
        profile = "latency";
        slice-us = "5ms";
      };
      description = ''
        The content of {file}`/etc/scx_magpie.toml`: flags without their dashes, see
        {manpage}`scx_magpie(8)`. It is checked when the system is built. A change reloads the
        service.
      '';
    };

    exporter = {
      enable = lib.mkEnableOption "metrics of scx_magpie for Prometheus";

      listen = lib.mkOption {
        type = lib.types.str;
        default = "9811";
        example = "0.0.0.0:9811";
        description = "The port, of this machine only, or the address and port to listen on.";
      };
    };
  };

  config = lib.mkIf cfg.enable (
    lib.mkMerge [
      {
        assertions = [
          {
            assertion = lib.versionAtLeast config.boot.kernelPackages.kernel.version "6.12";
            message = "services.scx_magpie needs Linux 6.12 or newer.";
          }
          {
            assertion = !(config.services.scx.enable or false);
            message = "services.scx_magpie and services.scx exclude each other: disable one.";
          }
        ];

        environment.systemPackages = [ cfg.package ];
        environment.etc."scx_magpie.toml".source = file;

        # NixOS ignores [Install] of a package's units.
        systemd.packages = [ cfg.package ];
        systemd.services.scx_magpie = {
          wantedBy = [ "multi-user.target" ];
          reloadTriggers = [ file ];
        };
      }

      (lib.mkIf cfg.exporter.enable {
        systemd.services.scx_magpie-export = {
          wantedBy = [ "multi-user.target" ];
          serviceConfig.ExecStart = [
            "" # in place of the unit's
            "${lib.getExe cfg.package} export --listen ${cfg.exporter.listen}"
          ];
        };
      })
    ]
  );
}
