#include "coordinator/convert/bank_file_writer.h"

#include <utility>

#include "common/status/status_macros.h"

namespace shoal {

absl::StatusOr<std::unique_ptr<BankFileWriter>> BankFileWriter::Create(const std::string& directory,
                                                                       int64_t layer) {
  SHOAL_ASSIGN_OR_RETURN(std::unique_ptr<StagedFile> bank,
                         StagedFile::Create(directory, BankFile(layer)));
  SHOAL_ASSIGN_OR_RETURN(std::unique_ptr<StagedFile> tree,
                         StagedFile::Create(directory, BankTreeFile(layer)));
  return std::unique_ptr<BankFileWriter>(new BankFileWriter(std::move(bank), std::move(tree)));
}

absl::Status BankFileWriter::Append(std::span<const std::byte> records,
                                    std::span<const Sha256Digest> unit_digests) {
  SHOAL_RETURN_IF_ERROR(bank_->Append(records));
  for (const Sha256Digest& digest : unit_digests) {
    leaves_.append(reinterpret_cast<const char*>(digest.data()), digest.size());
  }
  return absl::OkStatus();
}

absl::StatusOr<BankFileWriter::Written> BankFileWriter::Publish() {
  SHOAL_RETURN_IF_ERROR(tree_->Append(std::as_bytes(std::span(leaves_.data(), leaves_.size()))));
  Written written;
  SHOAL_ASSIGN_OR_RETURN(written.bank, bank_->Publish());
  SHOAL_ASSIGN_OR_RETURN(written.tree, tree_->Publish());
  written.tree_root = TreeRoot(leaves_);
  return written;
}

}  // namespace shoal
