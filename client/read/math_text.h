#ifndef ANNULUS_CLIENT_READ_MATH_TEXT_H_
#define ANNULUS_CLIENT_READ_MATH_TEXT_H_

#include <pugixml.hpp>
#include <string>

namespace annulus::client {

// Writes a formula on one line: "x^2", "a_(i+1)", "(a+b)/2", "√(x)". `node` is MathML (`math`, in
// pages, e-books and odt) or Office Math (`oMath`, in docx and pptx).
std::string MathText(const pugi::xml_node& node);

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_READ_MATH_TEXT_H_
