// Protocol Buffers messages out of a fuzzer's bytes.
#ifndef SHOAL_TESTS_FUZZ_PARSE_MESSAGE_H_
#define SHOAL_TESTS_FUZZ_PARSE_MESSAGE_H_

#include <cstddef>
#include <cstdint>
#include <optional>

namespace shoal::testing {

// Nothing where the bytes are no message of the type, which a server's rules never see. Fields that the
// type does not have are dropped: the library keeps them, and they are no rule's matter.
template <typename Message>
std::optional<Message> ParseMessage(const uint8_t* data, size_t size) {
  Message message;
  if (!message.ParseFromArray(data, static_cast<int>(size))) {
    return std::nullopt;
  }
  message.DiscardUnknownFields();
  return message;
}

}  // namespace shoal::testing

#endif  // SHOAL_TESTS_FUZZ_PARSE_MESSAGE_H_
