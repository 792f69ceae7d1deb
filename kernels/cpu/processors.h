#ifndef ANNULUS_KERNELS_CPU_PROCESSORS_H_
#define ANNULUS_KERNELS_CPU_PROCESSORS_H_

// Which processors a thread may run on.

#include <optional>
#include <string>
#include <vector>

namespace annulus {

// Numbers of logical processors as the system counts them, ascending.
using Processors = std::vector<int>;

// Those in the calling thread's affinity mask, which a cpuset of a control group narrows too. Empty
// where the system does not say.
Processors UsableProcessors();

// Keeps the calling thread on `processors`. An empty list changes nothing, and where the system
// refuses, the thread goes on as it was: placement is for speed alone.
void BindThread(const Processors& processors);

// "0-3,8,10-11" as in files of the kernel; nothing where the text is not such a list, has a number
// beyond 2^20 or a range that runs backwards. An empty text is an empty list.
std::optional<Processors> ParseProcessorList(const std::string& text);

}  // namespace annulus

#endif  // ANNULUS_KERNELS_CPU_PROCESSORS_H_
