#ifndef ANNULUS_ENGINE_WORKERS_RING_SHELVES_H_
#define ANNULUS_ENGINE_WORKERS_RING_SHELVES_H_

#include <cstdint>
#include <memory>
#include <utility>

#include "engine/tiers/local_shelves.h"
#include "engine/tiers/rank_shelves.h"
#include "engine/workers/ring_crew.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace annulus {

// The shelves of a ring over processes: those of this process, and those at workers. No page is
// copied while a step that was aborted may still write it: see RingCrew::AwaitAborted.
class RingShelves final : public RankShelves {
 public:
  // `here`: of the ranks below `local`; null: there are none. `crew` must outlive the object.
  RingShelves(RingCrew& crew, std::unique_ptr<LocalShelves> here, int32_t local)
      : crew_(crew), here_(std::move(here)), local_(local) {}

  absl::Status Save(PageId page, int32_t slot, const PageKey& key) override {
    if (!is_here(page)) {
      return crew_.Copy({wire::CopyPage::KIND_SAVE, page, slot, key, {}}).status();
    }
    ANNULUS_RETURN_IF_ERROR(crew_.AwaitAborted(page.rank));
    return here_->Save(page, slot, key);
  }
  absl::Status Load(PageId page, int32_t slot, const PageKey& key) override {
    if (!is_here(page)) {
      return crew_.Copy({wire::CopyPage::KIND_LOAD, page, slot, key, {}}).status();
    }
    ANNULUS_RETURN_IF_ERROR(crew_.AwaitAborted(page.rank));
    return here_->Load(page, slot, key);
  }
  absl::StatusOr<bool> Same(PageId one, PageId other) override {
    ANNULUS_CHECK(one.rank == other.rank) << "pages of ranks " << one.rank << " and " << other.rank;
    if (!is_here(one)) return crew_.Copy({wire::CopyPage::KIND_SAME, one, 0, {}, other});
    ANNULUS_RETURN_IF_ERROR(crew_.AwaitAborted(one.rank));
    return here_->Same(one, other);
  }

  void Stop() override { crew_.StopCopies(); }

  int64_t resident_bytes() const override { return here_ == nullptr ? 0 : here_->resident_bytes(); }

 private:
  bool is_here(PageId page) const { return page.rank < local_; }

  RingCrew& crew_;
  const std::unique_ptr<LocalShelves> here_;
  const int32_t local_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_WORKERS_RING_SHELVES_H_
