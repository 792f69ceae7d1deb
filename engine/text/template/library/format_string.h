#ifndef ANNULUS_ENGINE_TEXT_TEMPLATE_LIBRARY_FORMAT_STRING_H_
#define ANNULUS_ENGINE_TEXT_TEMPLATE_LIBRARY_FORMAT_STRING_H_

#include <string>

#include "engine/text/template/runtime.h"
#include "engine/text/template/value.h"

namespace annulus::jinja {

// Python's `format % values`. `values`: a tuple, a dict for %(name)s, or a single value. Supports
// the conversions s, r, d, i, x, o, e, f, g, c and % with flags, and width and precision up to
// 1000.
Value PercentFormat(Runtime& runtime, const std::string& format, const Value& values);

// str.format(): {}, {0}, {name}, followed by .attribute and [element], !s and !r, and a format
// [[fill]align][sign][0][width][,][.precision][type] with a width up to 1000.
Value BraceFormat(Runtime& runtime, const std::string& format, Arguments& arguments);

}  // namespace annulus::jinja

#endif  // ANNULUS_ENGINE_TEXT_TEMPLATE_LIBRARY_FORMAT_STRING_H_
