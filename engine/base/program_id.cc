#include "engine/base/program_id.h"

#include <elf.h>
#include <link.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace annulus {
namespace {

// The build id among the notes of a program; empty: there is none.
std::string BuildIdIn(absl::string_view notes) {
  const auto padded = [](size_t size) { return (size + 3) / 4 * 4; };
  ElfW(Nhdr) head;
  while (notes.size() >= sizeof(head)) {
    std::memcpy(&head, notes.data(), sizeof(head));
    const size_t name_at = sizeof(head);
    const size_t value_at = name_at + padded(head.n_namesz);
    const size_t end = value_at + padded(head.n_descsz);
    if (value_at + head.n_descsz > notes.size()) break;
    if (head.n_type == NT_GNU_BUILD_ID &&
        notes.substr(name_at, head.n_namesz) == absl::string_view("GNU", 4)) {
      return absl::BytesToHexString(notes.substr(value_at, head.n_descsz));
    }
    if (end > notes.size()) break;
    notes.remove_prefix(end);
  }
  return "";
}

// Called for the program itself first.
int LookAtProgram(dl_phdr_info* info, size_t, void* found) {
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& part = info->dlpi_phdr[i];
    if (part.p_type != PT_NOTE) continue;
    const auto* const begin = reinterpret_cast<const char*>(info->dlpi_addr + part.p_vaddr);
    std::string id = BuildIdIn(absl::string_view(begin, part.p_memsz));
    if (!id.empty()) *static_cast<std::string*>(found) = std::move(id);
  }
  return 1;  // no library is looked at
}

}  // namespace

const std::string& ProgramId() {
  static const std::string id = [] {
    std::string found;
    dl_iterate_phdr(LookAtProgram, &found);
    if (!found.empty()) return found;
    std::random_device random;
    return absl::StrCat("process ", random(), " ", random(), " ", random(), " ", random());
  }();
  return id;
}

}  // namespace annulus
