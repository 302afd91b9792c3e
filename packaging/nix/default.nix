# offld without LLVM, for reports, checks and edits: `nix-build packaging/nix`.
{
  pkgs ? import <nixpkgs> { },
}:

pkgs.rustPlatform.buildRustPackage {
  pname = "offld";
  version = (builtins.fromTOML (builtins.readFile ../../Cargo.toml)).workspace.package.version;
  src = pkgs.lib.cleanSource ../..;
  cargoLock.lockFile = ../../Cargo.lock;
  buildNoDefaultFeatures = true;
  cargoBuildFlags = [ "--bin=offld" ];
  # The tests need LLVM, CUDA and a network.
  doCheck = false;
  meta = {
    description = "The offload linker: links device code, and inspects, checks and edits binaries";
    license = pkgs.lib.licenses.asl20;
    mainProgram = "offld";
    platforms = pkgs.lib.platforms.linux;
  };
}
