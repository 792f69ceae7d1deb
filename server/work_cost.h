#ifndef ANNULUS_SERVER_WORK_COST_H_
#define ANNULUS_SERVER_WORK_COST_H_

#include <cstddef>

#include "absl/strings/string_view.h"
#include "annulus/v1/inference.pb.h"

namespace annulus {

// Upper bounds of the heap that the work for a request takes at its peak, beside the request.

// Token ids of a text, and whatever making them takes: most where the text has no spaces, at which
// tokenizers cut it.
size_t TokenizeWork(absl::string_view text);

// A conversation's text by a chat template, and its ids. What the template computes on the way is
// not counted: RenderLimits bounds it.
size_t ChatWork(const v1::Messages& messages);

}  // namespace annulus

#endif  // ANNULUS_SERVER_WORK_COST_H_
