#include <cstddef>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "common/checkpoint/checkpoint.h"
#include "common/io/checked_range.h"
#include "common/io/file.h"
#include "common/io/json_fields.h"
#include "common/status/status_macros.h"
#include "common/status/status_util.h"

namespace shoal {
namespace {

constexpr char kMetadata[] = "__metadata__";  // the one key of a header that names no tensor

// The length field and the header, padded with spaces so that the data is aligned to 8 bytes.
std::string HeaderBytes(const std::vector<TensorSpec>& tensors,
                        const std::vector<uint64_t>& elements) {
  Json json = Json::object();
  json[kMetadata] = {{"format", "pt"}};
  uint64_t offset = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const uint64_t end = offset + elements[i] * DTypeBytes(tensors[i].dtype);
    json[tensors[i].name] = {{"dtype", std::string(DTypeName(tensors[i].dtype))},
                             {"shape", tensors[i].shape},
                             {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = json.dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
  text.append((8 - text.size() % 8) % 8, ' ');
  const uint64_t length = text.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof(length)) + text;
}

// Elements of each tensor; INVALID_ARGUMENT where the list cannot become a file.
absl::StatusOr<std::vector<uint64_t>> CountElements(const std::string& path,
                                                    const std::vector<TensorSpec>& tensors) {
  constexpr uint64_t kMaxElements = uint64_t{1} << 56;  // in all; keeps byte offsets under 2^63
  std::vector<uint64_t> elements;
  uint64_t total = 0;
  absl::flat_hash_set<std::string> names;
  for (const TensorSpec& spec : tensors) {
    if (spec.name == kMetadata || !names.insert(spec.name).second) {
      return absl::InvalidArgumentError(absl::StrCat("write ", path, ": the tensor name ",
                                                     spec.name, " is reserved or given twice"));
    }
    const std::optional<uint64_t> product = CheckedProduct(spec.shape);
    if (!product || !RangeFits(total, *product, kMaxElements)) {
      return absl::InvalidArgumentError(absl::StrCat("write ", path, ": with tensor ", spec.name,
                                                     " the file has more than ", kMaxElements,
                                                     " elements"));
    }
    total += *product;
    elements.push_back(*product);
  }
  return elements;
}

}  // namespace

struct SafetensorsWriter::Impl {
  ~Impl() {
    if (!temporary.empty()) {
      // Nothing was published: what was written is of no use to anyone.
      std::error_code ignored;
      std::filesystem::remove(temporary, ignored);
    }
  }

  std::string path;
  std::string temporary;  // empty before it exists and after it was published
  std::vector<TensorSpec> tensors;
  std::vector<uint64_t> elements;  // of each tensor
  UniqueFd fd;
  size_t next = 0;
};

SafetensorsWriter::SafetensorsWriter(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
SafetensorsWriter::~SafetensorsWriter() = default;

absl::StatusOr<std::unique_ptr<SafetensorsWriter>> SafetensorsWriter::Create(
    const std::string& path, std::vector<TensorSpec> tensors) {
  auto impl = std::make_unique<Impl>();
  SHOAL_ASSIGN_OR_RETURN(impl->elements, CountElements(path, tensors));
  const std::string header = HeaderBytes(tensors, impl->elements);
  impl->path = path;
  impl->tensors = std::move(tensors);
  const std::string temporary = absl::StrCat(path, ".tmp");
  SHOAL_ASSIGN_OR_RETURN(impl->fd, CreateForWrite(temporary));
  impl->temporary = temporary;
  SHOAL_RETURN_IF_ERROR(
      WriteAll(impl->fd, temporary, std::as_bytes(std::span(header.data(), header.size()))));
  return std::unique_ptr<SafetensorsWriter>(new SafetensorsWriter(std::move(impl)));
}

absl::Status SafetensorsWriter::AppendFloat(std::span<const float> data) {
  if (impl_->next >= impl_->tensors.size()) {
    return absl::FailedPreconditionError(
        absl::StrCat("write ", impl_->path, ": more tensors than were announced"));
  }
  const TensorSpec& spec = impl_->tensors[impl_->next];
  const uint64_t elements = impl_->elements[impl_->next];
  if (spec.dtype != DType::kF32 || data.size() != elements) {
    return absl::FailedPreconditionError(absl::StrCat(
        "write ", impl_->path, ": tensor ", spec.name, " was announced with ", elements,
        " elements of ", DTypeName(spec.dtype), ", ", data.size(), " of F32 came"));
  }
  SHOAL_RETURN_IF_ERROR(WriteAll(impl_->fd, impl_->temporary, std::as_bytes(data)));
  ++impl_->next;
  return absl::OkStatus();
}

absl::Status SafetensorsWriter::Finish() {
  if (impl_->next != impl_->tensors.size()) {
    return absl::FailedPreconditionError(absl::StrCat("write ", impl_->path, ": tensor ",
                                                      impl_->tensors[impl_->next].name,
                                                      " was announced and did not come"));
  }
  if (impl_->temporary.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("write ", impl_->path, ": it is finished already"));
  }
  SHOAL_RETURN_IF_ERROR(SyncFile(impl_->fd, impl_->temporary));
  SHOAL_RETURN_IF_ERROR(Annotate(impl_->fd.Close(), impl_->temporary));
  SHOAL_RETURN_IF_ERROR(RenameDurably(impl_->temporary, impl_->path));
  impl_->temporary.clear();
  return absl::OkStatus();
}

}  // namespace shoal
