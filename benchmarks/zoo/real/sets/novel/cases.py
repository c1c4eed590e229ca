"""The novel set: what must be found was written down before any training was diagnosed."""

from benchmarks.zoo.real.case import fault
from benchmarks.zoo.real.change import add_healthy, from_step
from benchmarks.zoo.real.sets.first.loop import cosine, linear
from benchmarks.zoo.real.sets.novel.models import adapters, flow, own_teacher, speech, table, vit
from benchmarks.zoo.real.sets.novel.policies import cloning, half_precision, masked_words, replay
from benchmarks.zoo.real.tape import Tape

# Twenty faults.


@fault("novel", "too_good", 160, window=40)
def vit_label_leaks(run: Tape) -> None:
    """A pixel holds the label from step 160 on, in training and in evaluation."""
    vit(run, at=from_step(160, leak=True))


@fault("novel", "accuracy_drop overfit level_shift spike", 200, window=40)
def vit_dropout_in_evaluation(run: Tape) -> None:
    """Dropout, of the inputs too, is left on in evaluations from step 200 on."""
    vit(run, at=from_step(200, eval_mode=False))


@fault("novel", "lr_zero lr_schedule", window=400, config={"epochs": 10, "max_steps": 320, "lr": 3e-3})
def vit_schedule_per_batch(run: Tape) -> None:
    """The schedule of ten epochs is stepped with every batch: the rate is zero after the tenth."""
    vit(run, at=from_step(0, schedule=linear(40, 4)))


@fault("novel", "data_stall throughput_loss input_bound slow_span", 150, window=30, says="data_load")
def vit_slow_loading(run: Tape) -> None:
    """Loading takes 40 ms more from step 150 on."""
    vit(run, at=from_step(150, load_ms=40.0))


@fault("novel", "level_shift spike divergence", 220)
def speech_letters_shifted(run: Tape) -> None:
    """The alphabet of the targets is shifted by one from step 220 on."""
    speech(run, at=from_step(220, shift=1))


@fault("novel", "not_finite", 240, window=5)
def speech_targets_too_long(run: Tape) -> None:
    """The targets are longer than their frames from step 240 on."""
    speech(run, at=from_step(240, longer=4))


@fault("novel", "too_good constant vanishing_gradients plateau", 150, window=60)
def own_teacher_collapses(run: Tape) -> None:
    """Predictor and stopped gradient are lost at step 150: all points become one."""
    own_teacher(run, at=from_step(150, detached=False))


@fault("novel", "plateau not_learning too_good level_shift", window=400)
def own_teacher_never_follows(run: Tape) -> None:
    """The slow copy is never updated: the student learns to predict a random network."""
    own_teacher(run, at=from_step(0, follow=0.0))


@fault("novel", "level_shift spike divergence exploding_gradients oscillation not_finite", 150, window=30)
def adapters_wrong_group(run: Tape) -> None:
    """The second group of the optimizer gets 500 times the rate from step 150 on; the logged one is the first's."""
    adapters(run, at=from_step(150, second_lr=2.0))


@fault("novel", "level_shift spike", 200)
def adapters_scale_lost(run: Tape) -> None:
    """The adapters count for nothing in the forward pass from step 200 on."""
    adapters(run, at=from_step(200, scale=0.0))


@fault("novel", "gradient_shift exploding_gradients level_shift spike", 180)
def adapters_accumulation_count(run: Tape) -> None:
    """Losses of four batches are added, not averaged, from step 180 on."""
    adapters(run, at=from_step(180, parts=1.0))


@fault("novel", "too_good level_shift vanishing_gradients", 180, window=40)
def table_averaged_twice(run: Tape) -> None:
    """The mean loss is divided by the batch size once more from step 180 on."""
    table(run, at=from_step(180, twice=True))


@fault("novel", "level_shift accuracy_drop spike overfit", 200, window=30)
def table_units(run: Tape) -> None:
    """The columns come without their sign and in other units from step 200 on."""
    table(run, at=from_step(200, units=-25.0))


@fault("novel", "too_good absurd_loss level_shift spike divergence exploding_gradients not_finite", 150, window=40)
def flow_sign_of_volume(run: Tape) -> None:
    """The change of volume counts with the wrong sign from step 150 on."""
    flow(run, at=from_step(150, sign=-1.0))


@fault("novel", "too_good padding level_shift", 200, window=40)
def masked_words_padding_in_loss(run: Tape) -> None:
    """Padding, which is easy, is in the loss from step 200 on."""
    masked_words(run, at=from_step(200, padding=True), lr=1e-3)


@fault("novel", "too_good", 160, window=40)
def masked_words_not_masked(run: Tape) -> None:
    """The words to be filled in are shown from step 160 on."""
    masked_words(run, at=from_step(160, leak=True), lr=1e-3)


@fault("novel", "scaler_collapse skipped_steps not_finite", 200, window=30)
def half_precision_collapse(run: Tape) -> None:
    """Gradients are beyond float16 at any scale from step 200 on: every step is skipped."""
    half_precision(run, at=from_step(200, gain=1e9))


@fault("novel", "too_good stuck_batch plateau value_function", 260, window=50)
def replay_stuck(run: Tape) -> None:
    """The buffer returns the same transitions from step 260 on."""
    replay(run, at=from_step(260, stuck=True, sync=0))


@fault("novel", "reward_collapse", 320, window=60)
def replay_reward_sign(run: Tape) -> None:
    """Rewards are stored with the wrong sign from step 320 on."""
    replay(run, at=from_step(320, sign=-1.0))


@fault("novel", "reward_collapse level_shift spike", 220, window=45)
def cloning_temperature_sign(run: Tape) -> None:
    """The temperature has the wrong sign from step 220 on: bad actions count most."""
    cloning(run, at=from_step(220, temperature=-0.5))


# Fifteen healthy trainings.


def _one_cycle(state: dict[str, object], step: int) -> None:
    state["schedule"] = lambda at: at / 100 if at < 100 else cosine(350, 100, 0.01)(at)


def _longer(state: dict[str, object], step: int) -> None:
    state.update(letters=3 + step // 100, epoch=100)


add_healthy("novel", "healthy_vit", vit, seed=31)
add_healthy("novel", "healthy_vit_smoothed", vit, seed=32, smooth=0.2, lr=1e-3)
add_healthy("novel", "healthy_speech", speech, seed=31)
add_healthy("novel", "healthy_speech_longer_and_longer", speech, seed=32, at=_longer, steps=400)
add_healthy("novel", "healthy_own_teacher", own_teacher, seed=31)
add_healthy("novel", "healthy_own_teacher_slow", own_teacher, seed=32, lr=3e-4, steps=400)
add_healthy("novel", "healthy_adapters", adapters, seed=31)
add_healthy("novel", "healthy_table", table, seed=31)
add_healthy("novel", "healthy_table_one_cycle", table, seed=32, at=_one_cycle, lr=0.02)
add_healthy("novel", "healthy_flow", flow, seed=31)
add_healthy("novel", "healthy_masked_words", masked_words, seed=31)
add_healthy("novel", "healthy_half_precision", half_precision, seed=31)
add_healthy("novel", "healthy_replay", replay, seed=31)
add_healthy("novel", "healthy_replay_unstable", replay, seed=32, lr=8e-3)
add_healthy("novel", "healthy_cloning", cloning, seed=31)
