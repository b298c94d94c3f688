#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/container/container.h"
#include "common/io/byte_size.h"
#include "common/status/status_macros.h"
#include "coordinator/cli/commands.h"
#include "coordinator/cli/container_size.h"
#include "coordinator/cli/model_flags.h"
#include "coordinator/cli/plan_pool.h"

namespace shoal {
namespace {

class PlanCommand final : public Command {
 public:
  std::string name() const override { return "plan"; }
  std::string summary() const override {
    return "Say what running a model costs in memory, or plan a pool";
  }
  std::string examples() const override {
    return "  shoal plan ~/models/kimi-linear\n"
           "  shoal plan ~/models/kimi-linear --ctx 32768 --budget 24GiB\n"
           "  shoal plan ~/models/kimi-linear --nodes 127.0.0.1:7101,127.0.0.1:7102 --copies 2\n"
           "  shoal plan ~/models/kimi-linear --nodes 127.0.0.1:7101 --own --out pool.json\n"
           "  shoal plan ~/models/kimi-linear --nodes spec.json --explain --out pool.json\n"
           "  shoal plan ~/models/kimi-linear --nodes a:7071,b:7071,c:7071 --keep pool.json\n"
           "Nothing is loaded or copied. Exit code 3 where the model does not fit: the budget\n"
           "given, or without one the memory that is free, is below the floor.";
  }

  void AddFlags(FlagSet& flags) override {
    flags_.AddDirectory(flags);
    flags_.AddPlanOptions(flags);
    pool_.Add(flags);
  }

  absl::StatusOr<ExitCode> Run(Console& console) override {
    SHOAL_RETURN_IF_ERROR(pool_.Check());
    if (pool_.nodes && (flags_.budget_bytes || flags_.context_tokens || flags_.num_threads)) {
      return UsageError(
          "--ctx, --budget and --threads are about the memory of this machine; leave them out "
          "to plan a pool with --nodes");
    }
    SHOAL_ASSIGN_OR_RETURN(const std::unique_ptr<Container> container,
                           Container::Open(flags_.directory));
    const Manifest& manifest = container->manifest();
    if (pool_.nodes) {
      SHOAL_RETURN_IF_ERROR(pool_.Run(*container, console));
      return ExitCode::kOk;
    }
    SHOAL_ASSIGN_OR_RETURN(const MemoryPlan plan,
                           PlanFor(flags_, kDefaultContextTokens, manifest, console));
    if (console.json()) {
      console.PrintJson(PlanJson(plan));
    } else {
      console.Print(FormatPlan(plan));
      console.Print(Details(plan, SizeOf(manifest)));
    }
    if (!plan.fits) {
      console.Note(absl::StrCat(
          "shoal: the model does not fit: ", plan.budget_given ? "the budget" : "the usable memory",
          " is below the floor of ", plan.floor_bytes, " bytes"));
      return ExitCode::kBudgetBelowFloor;
    }
    return ExitCode::kOk;
  }

 private:
  static std::string Details(const MemoryPlan& plan, const ContainerSize& size) {
    return absl::StrFormat(
        "A token of context: %s of KV cache. A token decoded: %s of trunk from memory and %s of\n"
        "experts, from cache or disk. Container: %s, %.2f bits a weight.\n",
        FormatByteSize(plan.kv_bytes_per_token), FormatByteSize(plan.trunk_bytes_per_token),
        FormatByteSize(plan.working_set_bytes), FormatByteSize(size.total_bytes),
        size.bits_per_weight());
  }

  static Json PlanJson(const MemoryPlan& plan) {
    Json json;
    json["fits"] = plan.fits;
    json["floor_bytes"] = plan.floor_bytes;
    json["recommended_bytes"] = plan.recommended_bytes;
    json["budget_bytes"] = plan.budget_bytes;
    json["usable_bytes"] = plan.usable_bytes;
    json["prefill_chunk_tokens"] = plan.prefill_chunk_tokens;
    json["cache_records"] = plan.cache_records;
    json["record_bytes"] = plan.record_bytes;
    json["working_set_bytes"] = plan.working_set_bytes;
    json["kv_bytes_per_token"] = plan.kv_bytes_per_token;
    json["trunk_bytes_per_token"] = plan.trunk_bytes_per_token;
    json["experts_total_bytes"] = plan.experts_total_bytes;
    json["parts"] = Json::array();
    for (const MemoryPart& part : plan.floor) {
      json["parts"].push_back(
          {{"name", part.name}, {"floor_bytes", part.bytes}, {"detail", part.detail}});
    }
    return json;
  }

  ModelFlags flags_;
  PlanPoolFlags pool_;
};

}  // namespace

std::unique_ptr<Command> MakePlanCommand() { return std::make_unique<PlanCommand>(); }

}  // namespace shoal
