#ifndef ANNULUS_ENGINE_BASE_SHARED_VALUE_H_
#define ANNULUS_ENGINE_BASE_SHARED_VALUE_H_

#include <memory>
#include <utility>

namespace annulus {

// An optional value that is cheap to copy: copies share one object, which never changes. Behaves
// like std::optional<const T>; == compares the values, shared or not. Thread-safe if reading a T
// is.
template <class T>
class SharedValue {
 public:
  SharedValue() = default;
  SharedValue(T value)  // NOLINT: as std::optional
      : value_(std::make_shared<const T>(std::move(value))) {}
  // Null: no value.
  SharedValue(std::shared_ptr<const T> value)  // NOLINT: likewise
      : value_(std::move(value)) {}

  bool has_value() const { return value_ != nullptr; }
  const T& operator*() const { return *value_; }
  const T* operator->() const { return value_.get(); }
  // Null: no value.
  const std::shared_ptr<const T>& pointer() const { return value_; }

  // Replaces the value by an unshared copy (or a new T if there is none) and returns it, to be
  // changed. Valid until the next assignment.
  T& Own() {
    auto own = has_value() ? std::make_shared<T>(*value_) : std::make_shared<T>();
    T& value = *own;
    value_ = std::move(own);
    return value;
  }

  friend bool operator==(const SharedValue& a, const SharedValue& b) {
    if (a.value_ == b.value_) return true;
    return a.has_value() && b.has_value() && *a == *b;
  }

 private:
  std::shared_ptr<const T> value_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_BASE_SHARED_VALUE_H_
