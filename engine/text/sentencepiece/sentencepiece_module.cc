// libannulus_sentencepiece.so: a few C functions that wrap the sentencepiece library. It is opened
// by sentencepiece_library.cc in a linker namespace of its own, so nothing of the program and none
// of its libraries may be used here.

#include "engine/text/sentencepiece/sentencepiece_module.h"

#include <sentencepiece_processor.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <stdexcept>
#include <string_view>

namespace {

using sentencepiece::ImmutableSentencePieceText;
using sentencepiece::SentencePieceProcessor;

using Allocate = void* (*)(size_t);
using Release = void (*)(void*);

// Until the module is opened, objects with static storage are made with the memory at hand.
Allocate g_allocate = std::malloc;
Release g_release = std::free;

// Stands in front of every piece of memory, so that it goes back to where it came from.
struct alignas(std::max_align_t) Header {
  Release release;
};

void SetMessage(std::string_view text, char* message) {
  const size_t size = std::min<size_t>(text.size(), kAnnulusSentencePieceMessageBytes - 1);
  std::memcpy(message, text.data(), size);
  message[size] = '\0';
}

// Calls `work`, which gives whether it succeeded; false also for an exception.
template <typename Work>
bool Guarded(char* message, const Work& work) {
  try {
    const sentencepiece::util::Status status = work();
    if (status.ok()) return true;
    SetMessage(status.message(), message);
  } catch (const std::exception& error) {
    SetMessage(error.what(), message);
  } catch (...) {
    SetMessage("unknown exception", message);
  }
  return false;
}

void* Load(const char* model, size_t size, char* message) {
  std::unique_ptr<SentencePieceProcessor> processor;
  const bool loaded = Guarded(message, [&] {
    processor = std::make_unique<SentencePieceProcessor>();
    return processor->LoadFromSerializedProto({model, size});
  });
  return loaded ? processor.release() : nullptr;
}

int64_t Encode(const void* model, const char* text, size_t size, AnnulusSentencePieceToken* tokens,
               char* message) {
  int64_t count = -1;
  Guarded(message, [&] {
    ImmutableSentencePieceText encoded;
    const auto& processor = *static_cast<const SentencePieceProcessor*>(model);
    const auto status = processor.Encode({text, size}, encoded.mutable_proto());
    if (!status.ok()) return status;
    const size_t pieces = encoded.pieces_size();
    if (pieces > size) throw std::length_error("more tokens than bytes");
    // Not the ends that the library gives: inside a user-defined piece they are its start.
    size_t end = 0;
    for (size_t i = 0; i < pieces; ++i) {
      const auto piece = encoded.pieces(static_cast<int>(i));
      const auto id = static_cast<int32_t>(piece.id());
      end += processor.IsByte(id) ? 1 : piece.piece().size();
      tokens[i] = {id, static_cast<uint32_t>(end)};
    }
    count = static_cast<int64_t>(pieces);
    return status;
  });
  return count;
}

void Free(void* model) { delete static_cast<SentencePieceProcessor*>(model); }

constexpr AnnulusSentencePieceFunctions kFunctions = {Load, Encode, Free};

}  // namespace

// These stand in front of the C++ library's in the namespace, for sentencepiece too. The forms with
// a size, for arrays and without exceptions end in them.
void* operator new(size_t size) {
  void* const memory = g_allocate(sizeof(Header) + size);
  if (memory == nullptr) throw std::bad_alloc();
  return new (memory) Header{g_release} + 1;
}

void operator delete(void* memory) noexcept {
  if (memory == nullptr) return;
  Header* const header = static_cast<Header*>(memory) - 1;
  header->release(header);
}

void operator delete(void* memory, size_t) noexcept { operator delete(memory); }

const AnnulusSentencePieceFunctions* AnnulusSentencePieceOpen(Allocate allocate, Release release) {
  g_allocate = allocate;
  g_release = release;
  return &kFunctions;
}
