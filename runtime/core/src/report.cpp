// core_report.json: the numbers of the report that the core knows, under the keys of the contract.
#include <sys/resource.h>

#include <algorithm>
#include <cstdio>

#include "engine.hpp"
#include "kernel_label.hpp"

namespace phantora::core {

Json Engine::steps_json() {
  Json steps = Json::array();
  for (std::size_t index = 0; index < steps_.size(); ++index) {
    const Step& step = steps_[index];
    steps.push(std::move(Json::object()
                             .set("index", index)
                             .set("begin_ns", step.begin)
                             .set("end_ns", step.end)
                             .set("duration_ns", step.end - step.begin)
                             .set("compute_ns", step.shares.compute)
                             .set("communication_exposed_ns", step.shares.communication)
                             .set("host_exposed_ns", step.shares.host)
                             .set("idle_ns", step.shares.idle)));
  }
  return steps;
}

Json Engine::step_times_json() {
  std::vector<Duration> times;
  for (std::size_t index = config_.get_u64("warmup", 1); index < steps_.size(); ++index) {
    times.push_back(steps_[index].end - steps_[index].begin);
  }
  std::sort(times.begin(), times.end());
  Json json = Json::object();
  if (times.empty()) return std::move(json.set("median", {}).set("min", {}).set("max", {}).set("spread", {}));
  const std::size_t middle = times.size() / 2;
  const Duration median = times.size() % 2 == 1 ? times[middle] : (times[middle - 1] + times[middle]) / 2;
  return std::move(
      json.set("median", median).set("min", times.front()).set("max", times.back()).set("spread", cost_spread()));
}

double Engine::cost_spread() const {
  __uint128_t weighted = spread_weight_;
  Duration busy = 0;
  for (Duration each : busy_by_source_) busy += each;
  for (const OpShape& shape : shapes_.shapes())
    weighted += static_cast<__uint128_t>(shape.spread_ppm()) * shape.busy_ns;
  return busy == 0 ? 0.0 : static_cast<double>(static_cast<std::uint64_t>(weighted / busy)) * 1e-6;
}

Json Engine::memory_json() {
  Json ranks = Json::array();
  std::uint64_t peak = 0, peak_rank = 0;
  for (std::uint32_t rank = 0; rank < header_.world_size; ++rank) {
    const auto& device = segment_.device(rank);
    const auto& block = *actors_[rank]->block;
    const std::uint64_t device_peak =
        std::max(device_bytes(device.peak_bytes), std::min(actors_[rank]->memory_peak, header_.gpu.total_bytes));
    if (device_peak > peak) {
      peak = device_peak;
      peak_rank = rank;
    }
    ranks.push(std::move(Json::object()
                             .set("rank", rank)
                             .set("peak_device_bytes", device_peak)
                             .set("peak_reserved_bytes", device_bytes(block.torch_reserved_peak))
                             .set("peak_allocated_bytes", device_bytes(block.torch_allocated_peak))
                             .set("other_bytes", std::min(actors_[rank]->memory_other, header_.gpu.total_bytes))));
  }
  return std::move(Json::object()
                       .set("capacity_bytes", header_.gpu.total_bytes)
                       .set("peak_device_bytes", peak)
                       .set("peak_rank", peak_rank)
                       .set("caught_oom", oom_count_)
                       .set("ranks", std::move(ranks)));
}

// By name: the kernels that took most time, or those whose cost is not known.
Json Engine::kernels_json(bool unknown, std::size_t most) {
  struct Sum {
    std::uint64_t launches = 0;
    Duration time = 0;
    cost::Source source = cost::Source::kMeasured;  // the least certain of its shapes
  };
  std::map<std::string, Sum> sums;
  for (const OpShape& shape : shapes_.shapes()) {
    if (shape.launches == 0 || (unknown && shape.cost.source != cost::Source::kUnknown)) continue;
    std::string name;
    if (shape.type == wire::RecordType::kKernel) {
      name = names_.get(shape.words[0]);
      if (name.empty()) name = "kernel without a known name";
    } else if (unknown) {
      name = record_type_name(shape.type);
    } else if (shape.type == wire::RecordType::kGemm) {
      wire::GemmOp op;
      std::copy_n(reinterpret_cast<const char*>(shape.words.data()), sizeof op, reinterpret_cast<char*>(&op));
      name = "gemm " + std::to_string(op.m) + "x" + std::to_string(op.n) + "x" + std::to_string(op.k);
      if (op.batch > 1) name += " batch " + std::to_string(op.batch);
    } else {
      name = record_type_name(shape.type);
    }
    Sum& sum = sums[name];
    sum.launches += shape.launches;
    sum.time += shape.busy_ns;
    sum.source = std::max(sum.source, shape.cost.source);
  }
  std::vector<std::pair<std::string, Sum>> sorted(sums.begin(), sums.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.second.time > b.second.time; });
  if (!unknown && sorted.size() > most) sorted.resize(most);
  Json kernels = Json::array();
  for (const auto& [name, sum] : sorted) {
    Json kernel = Json::object();
    kernel.set("name", name).set("launches", sum.launches).set("time_ns", sum.time);
    if (!unknown) kernel.set("source", cost::source_name(sum.source)).set("label", short_kernel_name(name));
    kernels.push(std::move(kernel));
  }
  return kernels;
}

Json Engine::traffic_json() {
  struct Sum : Traffic {
    Duration exposed = 0;
  };
  // Two communicators with one label (a group made again) are one line.
  std::map<std::pair<std::string, std::string>, Sum> sums;
  for (const auto& [key, traffic] : traffic_) {
    const auto kind = static_cast<wire::CollectiveKind>(key & 0xff);
    Sum& sum = sums[{comms_[key >> 8]->label, collective_name(kind)}];
    sum.calls += traffic.calls;
    sum.bytes += traffic.bytes;
    sum.time += traffic.time;
    sum.exposed += breakdown_.exposed(key);
  }
  Json list = Json::array();
  for (const auto& [key, sum] : sums) {
    list.push(std::move(Json::object()
                            .set("op", key.second)
                            .set("group", key.first)
                            .set("calls", sum.calls)
                            .set("bytes", sum.bytes)
                            .set("time_ns", sum.time)
                            .set("exposed_ns", sum.exposed)));
  }
  return list;
}

Json Engine::costs_json() {
  Duration total = 0;
  for (Duration busy : busy_by_source_) total += busy;
  if (total == 0) return {};
  Json costs = Json::object();
  for (int source = 0; source < cost::kSourceCount; ++source) {
    costs.set(cost::source_name(static_cast<cost::Source>(source)),
              static_cast<double>(busy_by_source_[source]) / static_cast<double>(total));
  }
  return costs;
}

Json Engine::report_json() {
  Json ranks = Json::array();
  for (const auto& actor : actors_) {
    if (actor->state == Actor::State::kAbsent) continue;
    ranks.push(std::move(
        Json::object()
            .set("rank", actor->rank)
            .set("child", actor->child)
            .set("last_h_ns", actor->latest_clock())
            .set("ops", actor->ops)
            .set("steps", actor->steps + (actor->stepped ? 1 : 0))
            .set("exit_status", actor->exit_seen || actor->exit_status != 0 ? Json(actor->exit_status) : Json())));
  }
  Json notes = Json::array();
  for (const std::string& note : noted_) notes.push(note);  // sorted: they come in over sockets in any order
  if (log_.write_failed()) notes.push("the op log could not be written in full");
  if (log_.order_errors() > 0)
    notes.push("the op log broke its total order " + std::to_string(log_.order_errors()) + " times (a bug)");

  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const double cpu_s = static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                       static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
  Json report = Json::object();
  report.set("schema", 1).set("verdict", verdict_).set("message", message_).set("world_size", header_.world_size);
  report.set("virtual_ns", log_.last_end())
      .set("steps", steps_json())
      .set("step_time_ns", step_times_json())
      .set("memory", memory_json());
  report.set("oom_marks", oom_marks_).set("hang", hang_).set("mismatch", mismatch_).set("notes", std::move(notes));
  report.set("late_ops", late_ops_).set("costs", costs_json());
  report.set("unknown_kernels", kernels_json(true))
      .set("top_kernels", kernels_json(false))
      .set("communication", traffic_json());
  report.set("ranks", std::move(ranks)).set("order_errors", log_.order_errors()).set("ops", log_.ops_written());
  report.set("real", std::move(Json::object()
                                   .set("core_cpu_s", cpu_s)
                                   .set("records", records_)
                                   .set("timed_events", timeline_.processed())
                                   .set("forced_events", forced_)));
  return report;
}

void Engine::write_report() {
  if (!config_.has("out_dir")) return;
  const std::string path = config_.get("out_dir") + "/core_report.json";
  const std::string temporary = path + ".part";
  std::FILE* file = std::fopen(temporary.c_str(), "we");
  if (file == nullptr) {
    std::fprintf(stderr, "phantora-core: %s cannot be written\n", temporary.c_str());
    return;
  }
  const std::string text = report_json().text() + "\n";
  std::fwrite(text.data(), 1, text.size(), file);
  std::fclose(file);
  std::rename(temporary.c_str(), path.c_str());
}

}  // namespace phantora::core
