// The command line of shoal-node.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>

namespace shoal {

struct NodeFlags {
  std::string directory;  // empty: only join
  std::string listen = "127.0.0.1:7071";
  std::string name;
  std::string budget;
  std::string metrics;  // an address to listen on; empty: nowhere
  int64_t threads = 0;
  std::optional<std::string> cpus;
  std::optional<std::string> profile;
  std::optional<std::string> kernels;
  int64_t max_rows = 0;
  int64_t grace_s = 10;
  std::string tls;   // identity directory; empty: no TLS
  std::string join;  // an invitation, to get that identity with
  bool insecure = false;
  bool json = false;
  bool no_measure = false;
  bool allow_drill = false;
  int64_t drill_delay_ms = 0;
  std::string drill_read_rate;  // a size, as ParseByteSize takes it; empty: as fast as the disk is
};

// What the arguments say, or the code to end with after help, a version or an error was printed.
std::variant<NodeFlags, int> ParseNodeFlags(int argc, const char* const* argv);

}  // namespace shoal
