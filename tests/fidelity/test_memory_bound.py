"""Memory-bound kernels, copies and fills: bytes over bandwidth, and never nothing."""

from __future__ import annotations

import itertools

HBM = 3.35e12
ADD = "_ZN2at6native29vectorized_elementwise_kernelILi8ENS0_15CUDAFunctor_addIN3c108BFloat16EEESt5arrayIPcLm3ELb0EEEviT0_T1_"
ADD_FLOAT = "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_15CUDAFunctor_addIfEESt5arrayIPcLm3ELb0EEEviT0_T1_"
FILL_FLOAT = "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIfEESt5arrayIPcLm1ELb0EEEviT0_T1_"
MASKED = (
    "_ZN2at6native29vectorized_elementwise_kernelILi4EZZZNS0_44_GLOBAL__N__b23ef953_11_Indexing_cu_89862edb18masked_fill_kernel"
    "ERNS_14TensorIteratorERKN3c106ScalarEENKUlvE_clEvENKUlvE5_clEvEUnvhdl0_0_0_1_PFvS4_S8_ENS2_18masked_fill_kernelE7_ffb"
    "ESt5arrayIPcLm3ELb0EEEviT0_T1_"
)
CAST = (
    "_ZN2at6native27unrolled_elementwise_kernelIZZZNS0_23direct_copy_kernel_cudaERNS_18TensorIteratorBaseEENKUlvE0_clEvENKUlvE6_clEv"
    "EUlfE_St5arrayIPcLm2EELi4E23TrivialOffsetCalculatorILi1EjES9_NS0_6memory12LoadWithCastILi1EEENSB_13StoreWithCastILi1EEEEEviT_T0_T2_"
)
ADAM = (
    "_ZN2at6native51_GLOBAL__N__b7f847be_18_fused_adam_impl_cu_454205f325multi_tensor_apply_kernelINS1_32FusedOptimizerTensorListMetadata"
    "ILi4EEENS1_20FusedAdamMathFunctorIfLi4ELNS0_9ADAM_MODEE1ELb0EEEJPKfdddddbS9_S9_EEEvT_T0_DpT1_"
)
FOREACH_ADD = (
    "_ZN2at6native55_GLOBAL__N__f86471ef_22_ForeachBinaryOpList_cu25multi_tensor_apply_kernelINS1_18TensorListMetadataILi2EEENS1_"
    "24BinaryOpListAlphaFunctorIfLi2ELi2ELi0EEEJSt4plusIfEfEEEvT_T0_DpT1_"
)
FOREACH_ZERO = (
    "_ZN2at6native50_GLOBAL__N__637ba612_17_ForeachUnaryOp_cu25multi_tensor_apply_kernelINS1_18TensorListMetadataILi1EEENS1_"
    "11ZeroFunctorIfLi1ELi1ELi0EEEJEEEvT_T0_DpT1_"
)
REDUCE = "_ZN2at6native13reduce_kernelILi512ELi1ENS0_8ReduceOpIfNS0_14func_wrapper_tIfNS0_11sum_functorIfffEEEEjfLi4ELi4EEEEEvT1_"
NORM = "_ZN2at6native53_GLOBAL__N__4da244e1_20_layer_norm_kernel_cu28vectorized_layer_norm_kernelIN3c108BFloat16EfLb1EEEviT0_PKT_"
NORM_BACKWARD = "_ZN2at6native53_GLOBAL__N__4da244e1_20_layer_norm_kernel_cu28layer_norm_grad_input_kernelIN3c108BFloat16EfLb1EEEvPKT_"
SOFTMAX = "_ZN2at6native43_GLOBAL__N__f71e7945_10_SoftMax_cu19cunn_SoftMaxForwardILi4EfffNS1_22SoftMaxForwardEpilogueEEEvPT2_PKT0_i"
GATHER = "_ZN2at6native44_GLOBAL__N__b23ef953_11_Indexing_cu21indexSelectLargeIndexIfljLi2ELi2ELin2ELb1EEEvNS_4cuda6detail10TensorInfoE"
NLL = "_ZN2at6native39_GLOBAL__N__6bd09d29_7_Loss_cu36nll_loss_forward_reduce_cuda_kernel_2dIfflEEvPT_S4_PKS3_PKT1_S6_bllll"
RANDOM = "_ZN2at6native60_GLOBAL__N__ea7ea33f_27_DistributionNormal43distribution_elementwise_grid_stride_kernelIfLi4EZNS0_9templatesE"


def share_of_bandwidth(ns: int, moved: float) -> float:
    return moved / (ns / 1e9) / HBM


def test_elementwise_moves_its_operands(ask):
    n = 1 << 28
    add, add_float, fill, masked = ask(
        [
            f"kernel name={ADD} grid={n // 1024} block=128 elements={n}",
            f"kernel name={ADD_FLOAT} grid={n // 512} block=128 elements={n}",
            f"kernel name={FILL_FLOAT} grid={n // 512} block=128 elements={n}",
            f"kernel name={MASKED} grid={n // 512} block=128 elements={n}",
        ]
    )
    for a, moved in ((add, 6.0), (add_float, 12.0), (fill, 4.0), (masked, 9.0)):
        assert a.source == "analytical"
        assert 0.80 < share_of_bandwidth(a.ns, moved * n) < 0.86, (a, moved)


def test_bytes_of_the_op_correct_the_name(ask):
    """A cast moves different sizes on its two sides, and only the op's bytes say which."""
    n = 1 << 28
    known, guessed, twice = ask(
        [
            f"kernel name={CAST} grid={n // 512} block=128 elements={n} in={4 * n} out={2 * n}",
            f"kernel name={CAST} grid={n // 512} block=128 elements={n}",
            f"kernel name={CAST} grid={n // 512} block=128 elements={n} in={4 * n + 8 * n} out={8 * n}",
        ]
    )
    assert 0.70 < share_of_bandwidth(known.ns, 6 * n) < 0.76
    assert known.ns == guessed.ns
    assert twice.ns > known.ns


def test_broadcast_operands_are_read_once(ask):
    n = 1 << 28
    (full, broadcast) = ask(
        [
            f"kernel name={ADD_FLOAT} grid={n // 512} block=128 elements={n} in={8 * n} out={4 * n}",
            f"kernel name={ADD_FLOAT} grid={n // 512} block=128 elements={n} in={4 * n + 4096} out={4 * n}",
        ]
    )
    assert 0.6 < broadcast.ns / full.ns < 0.7


def test_optimizers_and_foreach(ask):
    chunks, chunk = 320, 65536
    adam, add, zero, bounded = ask(
        [
            f"kernel name={ADAM} grid={chunks} block=512",
            f"kernel name={FOREACH_ADD} grid={chunks} block=512",
            f"kernel name={FOREACH_ZERO} grid={chunks} block=512",
            f"kernel name={FOREACH_ADD} grid={chunks} block=512 in=1000 out=1000",
        ]
    )
    n = chunks * chunk
    for a, moved in ((adam, 28.0), (add, 12.0), (zero, 4.0)):
        # the fixed floor counts at this size
        assert 0.70 < share_of_bandwidth(a.ns - 2000, moved * n) < 0.81, (a, moved)
    assert bounded.ns < 3000, "tensors far smaller than a chunk"


def test_families_reach_their_share(ask):
    read, written = 1 << 30, 1 << 30
    wanted = {NORM: 0.75, NORM_BACKWARD: 0.60, SOFTMAX: 0.70, REDUCE: 0.75}
    for (name, share), a in zip(
        wanted.items(),
        ask([f"kernel name={name} grid=4096 block=512 in={read} out={written}" for name in wanted]),
        strict=True,
    ):
        assert abs(share_of_bandwidth(a.ns, read + written) - share) < 0.02, name
        assert a.source == "analytical"


def test_a_gather_does_not_read_the_whole_table(ask):
    table, rows = 128256 * 4096 * 2, 8192 * 4096 * 2
    gather, nll = ask(
        [
            f"kernel name={GATHER} grid=8192 block=128 op=aten::embedding in={table} out={rows}",
            f"kernel name={NLL} grid=1 block=32 op=aten::nll_loss_forward in={8192 * 128256 * 4} out=8",
        ]
    )
    assert gather.ns < 2.5 * rows / (0.5 * HBM) * 1e9
    assert nll.ns < 10_000


def test_nothing_is_free_and_the_unknown_is_named(ask):
    unknown = ["", "my_kernel", "_Z9my_kernelPfS_i", "triton_poi_fused_add_0"]
    answers = ask([f"kernel name={name} grid=1 block=32" for name in unknown])
    assert all(a.source == "unknown" and a.ns >= 2000 and a.spread >= 1.0 for a in answers)
    names = [ADD, FILL_FLOAT, CAST, ADAM, REDUCE, NORM, NORM_BACKWARD, SOFTMAX, GATHER, NLL, RANDOM]
    assert all(a.ns >= 2000 for a in ask([f"kernel name={name}" for name in names]))
    small = [
        "memset bytes=0",
        "copy kind=h2d bytes=0",
        "copy kind=h2h bytes=0",
        "copy kind=d2d bytes=0",
        "gemm m=0 n=0 k=0",
    ]
    assert all(a.ns >= 1 for a in ask(small))


def test_an_unknown_kernel_is_costed_from_its_grid(ask):
    times = [a.ns for a in ask([f"kernel name=my_kernel grid={1 << i} block=256" for i in range(0, 22, 3)])]
    assert all(a < b for a, b in itertools.pairwise(times))


def test_copies(ask):
    size = 1 << 30
    pinned, pageable, to_host, peer, on_device, fill = ask(
        [
            f"copy kind=h2d bytes={size} pinned=1",
            f"copy kind=h2d bytes={size}",
            f"copy kind=d2h bytes={size} pinned=1",
            f"copy kind=peer bytes={size}",
            f"copy kind=d2d bytes={size}",
            f"memset bytes={size}",
        ]
    )
    assert 50 < size / pinned.ns < 60
    assert pageable.ns > 3 * pinned.ns
    assert to_host.ns == pinned.ns
    assert peer.ns < pinned.ns / 5
    assert 0.8 < share_of_bandwidth(on_device.ns, 2 * size) < 0.86
    assert 0.8 < share_of_bandwidth(fill.ns, size) < 0.86


def test_the_slower_memory_is_slower(ask):
    n = 1 << 28
    question = [f"kernel name={ADD_FLOAT} grid={n // 512} block=128 elements={n}"]
    (fast,), (slow,) = ask(question), ask(question, gpu="h100-96gb-500w")
    assert abs(slow.ns / fast.ns - 3.35 / 2.4) < 0.01


def test_a_conversion_moves_six_bytes(ask):
    n = 1 << 28
    name = (
        "_ZN2at6native29vectorized_elementwise_kernelILi8EZNS0_25bfloat16_copy_kernel_cudaERNS_18TensorIteratorBaseEEUlfE_"
        "St5arrayIPcLm2ELb0EEEviT0_T1_"
    )
    (a,) = ask([f"kernel name={name} grid={n // 1024} block=128 elements={n}"])
    assert 0.80 < share_of_bandwidth(a.ns, 6 * n) < 0.86


def test_half_known_bytes_of_an_op_bound_nothing(ask):
    n = 1 << 28
    plain, only_inputs = ask(
        [
            f"kernel name={ADD_FLOAT} grid={n // 512} block=128 elements={n}",
            f"kernel name={ADD_FLOAT} grid={n // 512} block=128 elements={n} in={8 * n}",
        ]
    )
    assert plain.ns == only_inputs.ns


def test_one_launch_of_many_is_not_charged_with_the_whole_op(ask):
    gradients = 16384 * 4096 * 2
    sort = "_ZN14at_cuda_detail3cub6detail10radix_sort29DeviceRadixSortOnesweepKernelINS1_5radix10policy_hubIlllE10Policy1000E"
    cleanup = "_ZN2at6native14lpnorm_cleanupIfLNS0_8NormTypeE1EfE"
    answers = ask(
        [
            f"kernel name={sort} grid=2 block=384 op=aten::embedding_dense_backward in={gradients} out={gradients}",
            f"kernel name={cleanup} grid=300 block=512 op=aten::_foreach_norm in={8 << 30} out=1200",
        ]
    )
    assert all(a.ns < 12_000 for a in answers), answers


def test_absurd_sizes_are_answered(ask):
    """Records come from the ranks: no number in them may stop the core."""
    huge, word = 2**64 - 1, 2**32 - 1
    backward = "_Z40fmha_cutlassB_bf16_aligned_128x128_k128_sm80N22PyTorchMemEffAttention"
    forward = "_ZN13pytorch_flash16flash_fwd_kernelI23Flash_fwd_kernel_traitsILi999999999ELi0ELi64ELi4ELb0ELb0E"
    questions = [f"gemm m={word} n={word} k={word} batch={word}", f"memset bytes={huge}", f"copy kind=h2d bytes={huge}"]
    for name in (
        "",
        ADD,
        CAST,
        ADAM,
        REDUCE,
        RANDOM,
        GATHER,
        backward,
        forward,
        "_ZLiLiLiLi",
        "fmha_cutlass",
        "flash_fwd",
    ):
        questions.append(
            f"kernel name={name} grid={word},{word},{word} block={word},{word},{word} elements={huge} in={huge}"
        )
        questions.append(f"kernel name={name} grid=1,{2**31},{2**31} block=1 elements=0 in=1 out={huge}")
        questions.append(f"kernel name={name} grid=0,0,0 block=0,0,0")
    for op in ("all_reduce", "all_gather", "broadcast", "all_to_all", "send"):
        questions += [f"collective op={op} count={huge} type=fp64 ranks=0-{last} peer=99" for last in (0, 7, 300)]
    assert all(1 <= a.ns <= 2**62 for a in ask(questions))
