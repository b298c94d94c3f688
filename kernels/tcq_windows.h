// What the vector versions of tcq_kernels.h share: the values of a group's columns from the bits of its rows.
// Everything here is static, as in tcq_blocks.h.
//
// A target is a class with
//   Vector      a byte of each group of a bundle, of several rows
//   Tables      low and high, kTcqLow and kTcqHigh as vectors
//   Half        shifts every byte right, so that half a window lies in its four lowest bits; what is above does
//               not matter
//   Right, Left shift every byte and leave above and below the bits that Join takes what they like
//   Join        bit by bit the first where the mask has ones, and the second elsewhere, of the four lowest
//   Look        an entry of a table for every byte, by its four lowest bits
//   AddBytes    sums, byte by byte
#ifndef SHOAL_KERNELS_TCQ_WINDOWS_H_
#define SHOAL_KERNELS_TCQ_WINDOWS_H_

namespace shoal {

// The bits of rows and the last byte of the row before each: three planes and `before`.
template <typename T>
struct TcqBits {
  typename T::Vector before;
  typename T::Vector first;
  typename T::Vector second;
  typename T::Vector third;
};

// low[w & 15] + high[w >> 4] of the windows of column t of a group. Their lower halves are bits 3 t - 5 to 3 t - 2
// of a row, the upper halves bits 3 t - 1 to 3 t + 2.
template <typename T, int kColumn>
[[gnu::always_inline]] static inline typename T::Vector TcqValues(
    const TcqBits<T>& bits, const typename T::Tables& tables) {
  typename T::Vector low;
  typename T::Vector high;
  if constexpr (kColumn == 0) {
    low = T::template Half<3>(bits.before);
    high =
        T::template Join<0x01>(T::template Right<7>(bits.before), T::template Left<1>(bits.first));
  } else if constexpr (kColumn == 1) {
    low =
        T::template Join<0x03>(T::template Right<6>(bits.before), T::template Left<2>(bits.first));
    high = T::template Half<2>(bits.first);
  } else if constexpr (kColumn == 2) {
    low = T::template Half<1>(bits.first);
    high =
        T::template Join<0x07>(T::template Right<5>(bits.first), T::template Left<3>(bits.second));
  } else if constexpr (kColumn == 3) {
    low = T::template Half<4>(bits.first);
    high = T::template Half<0>(bits.second);
  } else if constexpr (kColumn == 4) {
    low =
        T::template Join<0x01>(T::template Right<7>(bits.first), T::template Left<1>(bits.second));
    high = T::template Half<3>(bits.second);
  } else if constexpr (kColumn == 5) {
    low = T::template Half<2>(bits.second);
    high =
        T::template Join<0x03>(T::template Right<6>(bits.second), T::template Left<2>(bits.third));
  } else if constexpr (kColumn == 6) {
    low =
        T::template Join<0x07>(T::template Right<5>(bits.second), T::template Left<3>(bits.third));
    high = T::template Half<1>(bits.third);
  } else {
    low = T::template Half<0>(bits.third);
    high = T::template Half<4>(bits.third);
  }
  return T::AddBytes(T::Look(tables.low, low), T::Look(tables.high, high));
}

}  // namespace shoal

#endif  // SHOAL_KERNELS_TCQ_WINDOWS_H_
