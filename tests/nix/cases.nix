# SPDX-License-Identifier: GPL-2.0-only
# dist/nix/module.nix with some configurations, evaluated with stub.nix: `failed` lists what is not
# as it should be.
{ program }:

let
  inherit (import ./stub.nix { inherit program; }) lib pkgs;

  # Values of the module's options, their defaults included.
  fill =
    options: values:
    assert builtins.removeAttrs values (builtins.attrNames options) == { };
    builtins.mapAttrs (
      name: option:
      if option ? isOption then
        let
          value = values.${name} or option.default;
        in
        assert option.type value && option.description != "";
        value
      else
        fill option (values.${name} or { })
    ) options;

  merge =
    a: b:
    if builtins.isList a then
      a ++ b
    else
      a // b // builtins.mapAttrs (name: merge a.${name}) (builtins.intersectAttrs a b);
  resolve =
    content:
    if content ? condition then
      if content.condition then resolve content.content else { }
    else if content ? contents then
      builtins.foldl' merge { } (map resolve content.contents)
    else
      content;

  # What NixOS gets of the module.
  system =
    values:
    let
      config = {
        boot.kernelPackages.kernel.version = values.kernel or "6.18";
        services = {
          inherit (values) scx;
          scx_magpie = fill module.options.services.scx_magpie values.scx_magpie;
        };
      };
      module = import ../../dist/nix/module.nix { inherit config lib pkgs; };
    in
    resolve module.config;
  with_ = values: system ({ scx = { }; } // values);

  off = with_ { scx_magpie.settings.slice-us = 1; };
  plain = with_ { scx_magpie.enable = true; };
  full = with_ {
    scx_magpie = {
      enable = true;
      settings = {
        slice-us = "5ms";
        wake-affine = [ "idle" ];
        no-cgroups = true;
      };
      exporter = {
        enable = true;
        listen = "0.0.0.0:9811";
      };
    };
  };
  wrong = with_ {
    scx_magpie = {
      enable = true;
      settings.slice-us = 1;
    };
  };
  refusals =
    system: map ({ message, ... }: message) (builtins.filter ({ assertion, ... }: !assertion) system.assertions);
  refused = refusals (with_ {
    scx_magpie.enable = true;
    kernel = "6.11";
    scx.enable = true;
  });

  package = builtins.head plain.systemd.packages;
  expected = {
    "switched off it changes nothing" = off == { };
    "a package with its version" = package.name == "scx_magpie-${(lib.importTOML ../../Cargo.toml).package.version}";
    "the command is in PATH" = plain.environment.systemPackages == [ package ];
    "the service starts at boot, the exporter does not" =
      plain.systemd.services == {
        scx_magpie = {
          wantedBy = [ "multi-user.target" ];
          reloadTriggers = [ plain.environment.etc."scx_magpie.toml".source ];
        };
      };
    "the exporter's address" =
      full.systemd.services.scx_magpie-export == {
        wantedBy = [ "multi-user.target" ];
        serviceConfig.ExecStart = [
          ""
          "${package}/bin/scx_magpie export --listen 0.0.0.0:9811"
        ];
      };
    "another file is another trigger" =
      full.systemd.services.scx_magpie.reloadTriggers != plain.systemd.services.scx_magpie.reloadTriggers;
    "nothing else" =
      builtins.attrNames full == [
        "assertions"
        "environment"
        "systemd"
      ]
      && builtins.attrNames full.systemd == [
        "packages"
        "services"
      ];
    "two refusals" = builtins.length refused == 2 && refusals plain == [ ];
  };
in
{
  failed = builtins.filter (name: !expected.${name}) (builtins.attrNames expected);
  inherit package;
  plain = plain.environment.etc."scx_magpie.toml".source;
  full = full.environment.etc."scx_magpie.toml".source;
  wrong = wrong.environment.etc."scx_magpie.toml".source;
}
