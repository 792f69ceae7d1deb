#ifndef ANNULUS_KERNELS_CPU_HOST_PROCESSORS_H_
#define ANNULUS_KERNELS_CPU_HOST_PROCESSORS_H_

// The processors that a thread may run on.

#include <optional>
#include <string>
#include <vector>

namespace annulus {

// Numbers of logical processors, as the system counts them, in ascending order.
using Processors = std::vector<int>;

// The processors in the calling thread's affinity mask, which the cpuset of a control group also
// narrows. Empty if the system does not say.
Processors UsableProcessors();

// Binds the calling thread to `processors`. Does nothing if the list is empty or the system
// refuses: placement only affects speed.
void BindThread(const Processors& processors);

// Parses a list as in kernel files, such as "0-3,8,10-11"; an empty text is an empty list. Returns
// nullopt if the text is not such a list, has a number above 2^20 or a descending range.
std::optional<Processors> ParseProcessorList(const std::string& text);

}  // namespace annulus

#endif  // ANNULUS_KERNELS_CPU_HOST_PROCESSORS_H_
