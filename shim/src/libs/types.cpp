#include "libs/types.hpp"

namespace phantora::libs {

using wire::DataType;

DataType from_cuda_type(int type) {
  switch (type) {
    case abi::kR32F:
      return DataType::kFloat32;
    case abi::kR64F:
      return DataType::kFloat64;
    case abi::kR16F:
      return DataType::kFloat16;
    case abi::kR16BF:
      return DataType::kBfloat16;
    case abi::kR8I:
      return DataType::kInt8;
    case abi::kR8U:
      return DataType::kUint8;
    case abi::kR16I:
      return DataType::kInt16;
    case abi::kR32I:
      return DataType::kInt32;
    case abi::kR32U:
      return DataType::kUint32;
    case abi::kR64I:
      return DataType::kInt64;
    case abi::kR64U:
      return DataType::kUint64;
    case abi::kC32F:
      return DataType::kComplex64;
    case abi::kC64F:
      return DataType::kComplex128;
    case abi::kR8FE4M3:
      return DataType::kFp8E4M3;
    case abi::kR8FE5M2:
      return DataType::kFp8E5M2;
    case abi::kR4FE2M1:
      return DataType::kFp4;
    default:
      return DataType::kNone;
  }
}

DataType from_nccl_type(int type) {
  static constexpr DataType kTypes[abi::kNcclTypeCount] = {DataType::kInt8,     DataType::kUint8,   DataType::kInt32,
                                                           DataType::kUint32,   DataType::kInt64,   DataType::kUint64,
                                                           DataType::kFloat16,  DataType::kFloat32, DataType::kFloat64,
                                                           DataType::kBfloat16, DataType::kFp8E4M3, DataType::kFp8E5M2};
  return type < 0 || type >= abi::kNcclTypeCount ? DataType::kNone : kTypes[type];
}

std::size_t bytes_of(DataType type) {
  switch (type) {
    case DataType::kNone:
      return 0;
    case DataType::kInt8:
    case DataType::kUint8:
    case DataType::kBool:
    case DataType::kFp8E4M3:
    case DataType::kFp8E5M2:
    case DataType::kFp4:
      return 1;
    case DataType::kInt16:
    case DataType::kFloat16:
    case DataType::kBfloat16:
      return 2;
    case DataType::kInt32:
    case DataType::kUint32:
    case DataType::kFloat32:
    case DataType::kTf32:
      return 4;
    case DataType::kInt64:
    case DataType::kUint64:
    case DataType::kFloat64:
    case DataType::kComplex64:
      return 8;
    case DataType::kComplex128:
      return 16;
  }
  return 0;
}

}  // namespace phantora::libs
