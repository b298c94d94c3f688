// shoal-node: the program that serves a share of a model's experts to a coordinator.
#include <CLI/CLI.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/container/manifest.h"
#include "common/version.h"

int main(int argc, char** argv) {
  CLI::App app("Serves a share of a model's experts to a Shoal coordinator.", "shoal-node");
  app.set_version_flag("--version",
                       absl::StrCat("shoal-node ", shoal::kVersion, " (container version ",
                                    shoal::kContainerVersion, ")"));
  app.footer(
      "Pools of machines are not part of this release: shoal-node does nothing yet but answer\n"
      "--help and --version. On one machine `shoal run` needs no node.\n\n"
      "Examples:\n  shoal-node --version");
  app.require_subcommand(0);
  CLI11_PARSE(app, argc, argv);
  return app.exit(CLI::CallForHelp()) == 0 ? 2 : 1;
}
