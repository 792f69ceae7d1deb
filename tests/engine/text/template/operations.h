#ifndef ANNULUS_TESTS_ENGINE_TEXT_TEMPLATE_OPERATIONS_H_
#define ANNULUS_TESTS_ENGINE_TEXT_TEMPLATE_OPERATIONS_H_

#include <cstddef>
#include <map>
#include <string>
#include <vector>

namespace annulus::testing {

// Expressions over OperationVariables for each name, in the forms that cost most.
using OperationLines = std::map<std::string, std::vector<std::string>>;
OperationLines StringMethodLines();
OperationLines FilterLines();
OperationLines TestLines();
// Templates for operators, functions and statements.
std::vector<std::string> OperatorSources();

// A JSON object whose members have about `size` bytes each, in the forms that make naive operations
// slow.
std::string OperationVariables(size_t size);

}  // namespace annulus::testing

#endif  // ANNULUS_TESTS_ENGINE_TEXT_TEMPLATE_OPERATIONS_H_
