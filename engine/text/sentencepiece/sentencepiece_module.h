#ifndef ANNULUS_ENGINE_TEXT_SENTENCEPIECE_SENTENCEPIECE_MODULE_H_
#define ANNULUS_ENGINE_TEXT_SENTENCEPIECE_SENTENCEPIECE_MODULE_H_

#include <cstddef>
#include <cstdint>

// The interface between the program and its module for the sentencepiece library
// (sentencepiece_module.cc). The module lives in a linker namespace with its own C and C++
// libraries, so only plain functions, bytes and numbers may cross; no exceptions and no C++
// objects.

extern "C" {

// A token, and its end: the number of bytes of text up to and including it.
struct AnnulusSentencePieceToken {
  int32_t id;
  uint32_t end;
};

// Messages are zero-terminated and truncated to kAnnulusSentencePieceMessageBytes.
enum { kAnnulusSentencePieceMessageBytes = 512 };

struct AnnulusSentencePieceFunctions {
  // Loads a model (ModelProto of sentencepiece_model.proto). Returns null on error, see `message`.
  void* (*load)(const char* model, size_t size, char* message);

  // Encodes text of at most 1 GiB. Returns the number of tokens, at most one per byte, or -1 with a
  // message. Threads may share a model.
  int64_t (*encode)(const void* model, const char* text, size_t size,
                    AnnulusSentencePieceToken* tokens, char* message);

  void (*free)(void* model);
};

// The module's only symbol. After the call the library's C++ objects use `allocate` (returns null
// if there is no memory) and `release` for memory; both must be thread-safe.
//
// The module's own C library is not used for this, because it is not told when a thread created by
// the other C library ends, so each thread would leave some KiB of cache behind forever.
const AnnulusSentencePieceFunctions* AnnulusSentencePieceOpen(void* (*allocate)(size_t),
                                                              void (*release)(void*));
}

#endif  // ANNULUS_ENGINE_TEXT_SENTENCEPIECE_SENTENCEPIECE_MODULE_H_
