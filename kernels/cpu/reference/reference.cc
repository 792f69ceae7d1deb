#include "kernels/cpu/reference/reference.h"

namespace annulus::reference {

OpTable Ops() {
  OpTable ops;
  ops.name = "cpu/reference";
  ops.kv_page_bytes = KvPageBytes;
  ops.matrix_bytes = MatrixBytes;
  ops.pack_rows = PackRows;
  ops.linear = Linear;
  ops.embed = Embed;
  ops.norm = Norm;
  ops.gated_mul = GatedMul;
  ops.scale = Scale;
  ops.soft_cap = SoftCap;
  ops.rope_table = RopeTable;
  ops.rope = Rope;
  ops.kv_append = KvAppend;
  ops.kv_read = KvRead;
  ops.attention = Attention;
  ops.block_scores = BlockScores;
  ops.score_sums = ScoreSums;
  ops.block_masses = BlockMasses;
  ops.key_summary = KeySummary;
  ops.summary_scores = SummaryScores;
  ops.row_means = RowMeans;
  ops.merge_state = MergeState;
  ops.merge_sink = MergeSink;
  ops.route = Route;
  ops.expert_linear = ExpertLinear;
  ops.add_choices = AddChoices;
  ops.gather_rows = GatherRows;
  ops.scatter_add = ScatterAdd;
  ops.predict_streams = PredictStreams;
  ops.correct_streams = CorrectStreams;
  ops.match_magnitude = MatchMagnitude;
  ops.cut_off = CutOff;
  ops.sample = Sample;
  return ops;
}

}  // namespace annulus::reference
