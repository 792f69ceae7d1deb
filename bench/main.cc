#include <iostream>
#include <string>
#include <vector>

#include "bench/cli.h"
#include "bench/peak/peak_meter.h"

int main(int argc, char** argv) {
  return annulus::bench::RunBench(std::vector<std::string>(argv + 1, argv + argc), std::cout,
                                  std::cerr, annulus::bench::PeakBufferBytes());
}
