// Feeds messages of the service ExpertNode to their rules, and grants to their check. The first byte says
// which message the rest is.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/container/slice_json.h"
#include "common/tls/pool_authority.h"
#include "expert_node/fill/partition_filler.h"
#include "expert_node/service/fetch_grant.h"
#include "expert_node/service/request_rules.h"
#include "expert_node/service/slice_message.h"
#include "expert_node/service/terms.h"
#include "shoal/v1/expert_node.pb.h"
#include "tests/fuzz/parse_message.h"

namespace {

using ::shoal::testing::ParseMessage;

constexpr int64_t kMaxRows = 3;
constexpr char kIdentity[] = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

void Expect(bool condition) {
  if (!condition) {
    std::abort();
  }
}

template <typename T>
T OrDie(absl::StatusOr<T> result) {
  Expect(result.ok());
  return std::move(result).value();
}

// 8 experts of 4 units in two layers, 2 a row, rows of 4 numbers.
shoal::ExpertSizes Sizes() {
  shoal::ExpertSizes sizes;
  sizes.layout.num_units = 4;
  sizes.layout.hidden_size = 4;
  sizes.num_experts = 8;
  sizes.num_experts_per_token = 2;
  sizes.layers = {1, 3};
  return sizes;
}

// Inside `whole`, none empty, no cell twice.
void ExpectDisjoint(const std::vector<shoal::ExpertSlice>& slices,
                    const shoal::ExpertSlice& whole) {
  std::vector<int> cells(static_cast<size_t>(whole.units.end * whole.experts.end));
  for (const shoal::ExpertSlice& slice : slices) {
    Expect(!slice.empty() && slice.units.end <= whole.units.end &&
           slice.experts.end <= whole.experts.end);
    for (auto unit = slice.units.begin; unit < slice.units.end; ++unit) {
      for (auto expert = slice.experts.begin; expert < slice.experts.end; ++expert) {
        Expect(cells[static_cast<size_t>(expert * whole.units.end + unit)]++ == 0);
      }
    }
  }
}

// What every caller may be told.
void ExpectRefusal(const absl::Status& status) {
  Expect(status.ok() || absl::IsInvalidArgument(status) || absl::IsFailedPrecondition(status));
}

void CheckLayer(const shoal::RequestRules& rules, const shoal::ExpertSizes& sizes,
                const shoal::v1::LayerRequest& request) {
  const auto slices = rules.CheckLayer(request);
  ExpectRefusal(slices.status());
  if (!slices.ok()) {
    return;
  }
  const int64_t rows = request.rows_size() / sizes.layout.hidden_size;
  Expect(request.id() != 0 && request.epoch() != 0 && sizes.LayerIndex(request.layer()));
  Expect(rows >= 1 && rows <= kMaxRows && request.rows_size() == rows * sizes.layout.hidden_size);
  Expect(request.expert_ids_size() == rows * sizes.num_experts_per_token &&
         request.expert_weights_size() == request.expert_ids_size());
  Expect(std::all_of(request.expert_ids().begin(), request.expert_ids().end(),
                     [&](uint32_t id) { return id < sizes.num_experts; }));
  const auto finite = [](float value) { return std::isfinite(value); };
  Expect(std::all_of(request.rows().begin(), request.rows().end(), finite) &&
         std::all_of(request.expert_weights().begin(), request.expert_weights().end(), finite));
  ExpectDisjoint(*slices, sizes.whole());
  Expect(static_cast<int64_t>(request.ByteSizeLong()) <= rules.MaxRequestBytes());
}

void CheckExecute(const shoal::v1::ExecuteRequest& request) {
  const shoal::ExpertSizes sizes = Sizes();
  const shoal::RequestRules rules(sizes, kMaxRows);
  if (request.has_hello()) {
    shoal::v1::Terms ours;
    ours.set_protocol_version(1);
    ours.mutable_container()->set_container_version(1);
    ours.mutable_container()->set_identity(kIdentity);
    ours.set_codec("rvq3");
    ours.set_arithmetic("exact");
    ours.set_kernel_revision(1);
    const absl::Status status = rules.CheckHello(request.hello(), ours).status();
    ExpectRefusal(status);
    Expect(!status.ok() || (request.hello().epoch() != 0 &&
                            request.hello().terms().container().identity() == kIdentity));
  } else if (request.has_layer()) {
    CheckLayer(rules, sizes, request.layer());
  } else if (request.has_prefetch()) {
    ExpectRefusal(rules.CheckPrefetch(request.prefetch()));
  }
}

// As CopyService checks it.
void CheckFetch(const shoal::v1::FetchUnitsRequest& request) {
  const shoal::ExpertSizes sizes = Sizes();
  const auto slice = shoal::FromMessage(request.slice(), "slice");
  ExpectRefusal(slice.status());
  if (slice.ok() && shoal::CheckSlices(sizes.whole(), {&*slice, 1}, "slice").ok()) {
    ExpectDisjoint({*slice}, sizes.whole());
  }
}

void CheckFill(const shoal::v1::FillRequest& request) {
  shoal::FillOptions options;
  options.name = "attic";
  const auto order = shoal::CheckFillRequest(request, options);
  ExpectRefusal(order.status());
  if (order.ok()) {
    Expect(request.name() == "attic" && !order->slices.empty() && !order->sources.empty());
    Expect(order->slices.size() <= 256 && order->sources.size() <= 64);
    for (const std::string& source : order->sources) {
      Expect(source.rfind("127.", 0) == 0 || source.rfind("[::1]", 0) == 0 ||
             source.rfind("localhost", 0) == 0);
    }
  }
}

void CheckDescription(const shoal::v1::DescribeReply& reply) {
  const auto slices = shoal::HoldingsOf(reply, Sizes().whole());
  ExpectRefusal(slices.status());
  if (slices.ok()) {
    ExpectDisjoint(*slices, Sizes().whole());
  }
}

// A pool with a coordinator and the nodes attic and cellar; attic has a grant for half of the experts.
struct Pool {
  std::shared_ptr<shoal::TransportSecurity> server;
  std::string attic_pem;
  std::string grant;

  static const Pool& Get() {
    static const Pool* const pool = new Pool;
    return *pool;
  }

  Pool() {
    char name[] = "/tmp/node_request_fuzz_XXXXXX";
    Expect(::mkdtemp(name) != nullptr);
    const std::string directory = absl::StrCat(name, "/pool");
    const absl::Time now = absl::Now();
    Expect(shoal::InitPool(directory, "home", "desk", now).ok());
    const auto authority = OrDie(shoal::PoolAuthority::Open(directory));
    const auto issue = [&](const std::string& node) {
      const auto identity = OrDie(authority->IssueIdentity(
          shoal::TlsRole::kNode, node, shoal::ValidFor(now, absl::Hours(240)), now));
      Expect(shoal::StoreIdentity(absl::StrCat(name, "/", node), identity).ok());
      return identity.certificate_pem;
    };
    attic_pem = issue("attic");
    issue("cellar");
    const auto load = [](const std::string& path, shoal::TlsRole role) {
      return OrDie(shoal::TransportSecurity::Load(path, {role}, shoal::Clock::Real()));
    };
    server = load(absl::StrCat(name, "/cellar"), shoal::TlsRole::kNode);
    const auto desk = load(absl::StrCat(directory, "/coordinator"), shoal::TlsRole::kCoordinator);
    const shoal::ExpertSlice half = {{0, 4}, {0, 4}};
    grant =
        OrDie(shoal::MakeFetchGrant(*desk, "attic", kIdentity, {&half, 1}, now + absl::Hours(240)));
  }
};

// Bytes that replace those of a good grant: place and value, again and again. What is still accepted is
// what was granted.
void CheckGrant(const uint8_t* data, size_t size, bool patched) {
  const Pool& pool = Pool::Get();
  std::string grant(reinterpret_cast<const char*>(data), size);
  if (patched) {
    grant = pool.grant;
    for (size_t i = 0; i + 3 <= size; i += 3) {
      grant[(data[i] + 256U * data[i + 1]) % grant.size()] = static_cast<char>(data[i + 2]);
    }
  }
  for (const shoal::ExpertSlice& slice :
       {shoal::ExpertSlice{{0, 4}, {0, 4}}, shoal::ExpertSlice{{0, 4}, {4, 5}}}) {
    const absl::Status status =
        shoal::CheckMayFetch(*pool.server, pool.attic_pem, grant, kIdentity, slice, absl::Now());
    Expect(status.ok() || absl::IsPermissionDenied(status) || absl::IsInvalidArgument(status));
    Expect(!status.ok() || (patched && slice.experts.begin == 0));
    Expect(status.ok() || size >= 3 || !patched || slice.experts.begin != 0);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) {
    return 0;
  }
  const uint8_t kind = data[0] % 6;
  ++data;
  --size;
  if (kind == 0) {
    if (const auto request = ParseMessage<shoal::v1::ExecuteRequest>(data, size)) {
      CheckExecute(*request);
    }
  } else if (kind == 1) {
    if (const auto request = ParseMessage<shoal::v1::FetchUnitsRequest>(data, size)) {
      CheckFetch(*request);
    }
  } else if (kind == 2) {
    if (const auto request = ParseMessage<shoal::v1::FillRequest>(data, size)) {
      CheckFill(*request);
    }
  } else if (kind == 3) {
    if (const auto reply = ParseMessage<shoal::v1::DescribeReply>(data, size)) {
      CheckDescription(*reply);
    }
  } else {
    CheckGrant(data, size, /*patched=*/kind == 5);
  }
  return 0;
}
