#include "kernels/cpu/host/memory_nodes.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <optional>

#include "absl/strings/str_cat.h"

namespace annulus {
namespace {

Processors ReadList(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return ParseProcessorList(line).value_or(Processors());
}

}  // namespace

std::vector<MemoryNode> ReadMemoryNodes(const std::string& root) {
  const std::string folder = absl::StrCat(root, "/sys/devices/system/node");
  const Processors usable = UsableProcessors();
  std::vector<MemoryNode> nodes;
  // The list of nodes has the form of a list of processors.
  for (const int number : ReadList(folder + "/online")) {
    MemoryNode node;
    node.number = number;
    const Processors all = ReadList(absl::StrCat(folder, "/node", number, "/cpulist"));
    std::set_intersection(all.begin(), all.end(), usable.begin(), usable.end(),
                          std::back_inserter(node.processors));
    if (!node.processors.empty()) nodes.push_back(std::move(node));
  }
  return nodes;
}

}  // namespace annulus
