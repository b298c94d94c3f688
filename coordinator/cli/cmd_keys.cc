#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/status/status_macros.h"
#include "common/tls/api_keys.h"
#include "coordinator/cli/commands.h"
#include "coordinator/cli/exit_code.h"

namespace shoal {
namespace {

constexpr char kExamples[] =
    "  shoal keys add laptop --keys ~/pool/keys.json\n"
    "  shoal keys list --keys ~/pool/keys.json\n"
    "  shoal keys revoke laptop --keys ~/pool/keys.json\n"
    "`shoal serve --keys FILE` takes them, and notices a change within a second.";

// What the three commands have in common: the file.
class KeysCommand : public Command {
 public:
  std::string examples() const override { return kExamples; }
  void AddFlags(FlagSet& flags) override {
    flags.Text("--keys", "FILE", &keys_, "The file of digests; `add` makes it");
  }
  absl::StatusOr<ExitCode> Run(Console& console) override {
    if (!keys_) {
      return UsageError("--keys FILE is missing: the file that `shoal serve --keys` is given");
    }
    SHOAL_RETURN_IF_ERROR(Act(*keys_, console));
    return ExitCode::kOk;
  }

 private:
  virtual absl::Status Act(const std::string& path, Console& console) = 0;
  std::optional<std::string> keys_;
};

class KeysAddCommand final : public KeysCommand {
 public:
  std::string name() const override { return "keys add"; }
  std::string summary() const override { return "Make an API key; it is shown once"; }
  void AddFlags(FlagSet& flags) override {
    flags.RequiredArgument("NAME", &name_, "Whose it is; for `keys revoke` and the log");
    KeysCommand::AddFlags(flags);
  }

 private:
  absl::Status Act(const std::string& path, Console& console) override {
    SHOAL_ASSIGN_OR_RETURN(const std::string key, AddApiKey(path, name_, absl::Now()));
    if (console.json()) {
      console.PrintJson({{"name", name_}, {"key", key}});
    } else {
      console.Print(absl::StrCat(key, "\n"));
      console.Note("shoal: this is the only time that the key is shown; the file has its digest");
    }
    return absl::OkStatus();
  }
  std::string name_;
};

class KeysListCommand final : public KeysCommand {
 public:
  std::string name() const override { return "keys list"; }
  std::string summary() const override { return "List API keys by name"; }

 private:
  absl::Status Act(const std::string& path, Console& console) override {
    SHOAL_ASSIGN_OR_RETURN(const std::vector<ApiKey> keys, ReadApiKeys(path));
    Json json;
    json["keys"] = Json::array();
    std::string text;
    for (const ApiKey& key : keys) {
      const std::string created =
          absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", key.created, absl::UTCTimeZone());
      json["keys"].push_back({{"name", key.name}, {"created", created}});
      absl::StrAppend(&text, key.name, "  made ", created, "\n");
    }
    if (console.json()) {
      console.PrintJson(json);
    } else {
      console.Print(text);
    }
    if (keys.empty()) {
      console.Note(absl::StrCat("shoal: no key was added to ", path, " yet"));
    }
    return absl::OkStatus();
  }
};

class KeysRevokeCommand final : public KeysCommand {
 public:
  std::string name() const override { return "keys revoke"; }
  std::string summary() const override { return "Make an API key worthless"; }
  void AddFlags(FlagSet& flags) override {
    flags.RequiredArgument("NAME", &name_, "Of the key");
    KeysCommand::AddFlags(flags);
  }

 private:
  absl::Status Act(const std::string& path, Console& console) override {
    SHOAL_RETURN_IF_ERROR(RemoveApiKey(path, name_));
    if (console.json()) {
      console.PrintJson({{"name", name_}, {"revoked", true}});
    } else {
      console.Print(absl::StrCat(name_, " is revoked\n"));
    }
    return absl::OkStatus();
  }
  std::string name_;
};

}  // namespace

std::unique_ptr<Command> MakeKeysAddCommand() { return std::make_unique<KeysAddCommand>(); }
std::unique_ptr<Command> MakeKeysListCommand() { return std::make_unique<KeysListCommand>(); }
std::unique_ptr<Command> MakeKeysRevokeCommand() { return std::make_unique<KeysRevokeCommand>(); }

}  // namespace shoal
