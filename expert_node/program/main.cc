// shoal-node: the program that serves a share of a model's experts to coordinators.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <variant>

#include "expert_node/program/node_flags.h"
#include "expert_node/program/node_program.h"

int main(int argc, char** argv) {
  // A write beyond the limit on file sizes then fails like one on a full disk.
  std::signal(SIGXFSZ, SIG_IGN);
  const std::variant<shoal::NodeFlags, int> parsed = shoal::ParseNodeFlags(argc, argv);
  const shoal::NodeFlags* flags = std::get_if<shoal::NodeFlags>(&parsed);
  const int code =
      flags != nullptr ? static_cast<int>(shoal::RunNode(*flags)) : *std::get_if<int>(&parsed);
  // Everything of ours is closed. Not through static destructors: threads of gRPC may still be
  // putting away its server, and would meet them.
  std::fflush(nullptr);
  std::_Exit(code);
}
