"""The fresh set: what must be found was written down before any training was diagnosed."""

from benchmarks.zoo.real.case import fault
from benchmarks.zoo.real.change import add_healthy, from_step
from benchmarks.zoo.real.sets.fresh.models import contrast, diffusion, graph, tuned, vae
from benchmarks.zoo.real.sets.fresh.tasks import clicks, experts, pictures, q_learning, student, tags, tasks
from benchmarks.zoo.real.tape import Tape

# Twenty-four faults.


@fault("fresh", "level_shift spike posterior_collapse", 220)
def vae_kl_weight_jumps(run: Tape) -> None:
    """The weight of the KL term is 100 times larger from step 220 on: nothing is encoded any more."""
    vae(run, at=from_step(220, beta=30.0))


@fault("fresh", "too_good divergence level_shift absurd_loss not_finite spike", 150, window=40)
def vae_kl_subtracted(run: Tape) -> None:
    """The KL term has the wrong sign from step 150 on."""
    vae(run, at=from_step(150, sign=-1.0))


@fault("fresh", "too_good", 180, window=30)
def contrast_one_view_twice(run: Tape) -> None:
    """Both views are the same picture from step 180 on."""
    contrast(run, at=from_step(180, same=True))


@fault("fresh", "not_learning plateau constant", window=350)
def contrast_views_not_paired(run: Tape) -> None:
    """The two views are shuffled apart from each other, from the start."""
    contrast(run, at=from_step(0, paired=False))


@fault("fresh", "level_shift spike divergence overfit", 250)
def diffusion_other_target(run: Tape) -> None:
    """The clean point is the target from step 250 on, not the noise."""
    diffusion(run, at=from_step(250, target="points"))


@fault("fresh", "not_learning plateau constant weights_frozen generalization_gap overfit", window=500)
def diffusion_average_never_moves(run: Tape) -> None:
    """The slow average of the weights, which is evaluated, is never updated."""
    diffusion(run, at=from_step(0, decay=1.0))


@fault("fresh", "accuracy_drop level_shift spike", 120, window=10)
def graph_edges_shuffled(run: Tape) -> None:
    """Edges are those of other nodes from epoch 120 on."""
    graph(run, at=from_step(120, edges="shuffled"))


@fault("fresh", "too_good spike accuracy_drop", 100, window=20)
def graph_labels_in_features(run: Tape) -> None:
    """Features hold the label from epoch 100 on."""
    graph(run, at=from_step(100, leak=True))


@fault("fresh", "not_learning weights_frozen constant plateau", window=320)
def adapters_not_optimized(run: Tape) -> None:
    """The optimizer has other weights than those of the adapters."""
    tuned(run, at=from_step(0, optimized=False))


@fault("fresh", "overfit level_shift divergence", 140, window=60)
def adapters_old_data_lost(run: Tape) -> None:
    """The old task's data is missing from the mix from step 140 on: what was learned first is forgotten."""
    tuned(run, at=from_step(140, mixed=False))


@fault("fresh", "plateau level_shift divergence spike", 150, window=50)
def tasks_depth_not_trained(run: Tape) -> None:
    """The loss of the depth counts for nothing from step 150 on."""
    tasks(run, at=from_step(150, weight=0.0))


@fault("fresh", "moe_imbalance", 150, window=60)
def experts_one_for_all(run: Tape) -> None:
    """The router prefers one expert from step 150 on, and nothing balances it."""
    experts(run, at=from_step(150, balance=0.0, bias=8.0))


@fault("fresh", "accuracy_drop level_shift spike overfit", 15, window=4)
def clicks_misaligned(run: Tape) -> None:
    """Clicks belong to other rows from epoch 15 on."""
    clicks(run, at=from_step(15, shift=3))


@fault("fresh", "not_learning plateau", window=30)
def clicks_in_two_buckets(run: Tape) -> None:
    """All users and items fall into two buckets."""
    clicks(run, at=from_step(0, buckets=2))


@fault("fresh", "divergence value_function absurd_loss exploding_gradients not_finite level_shift", 100, window=60)
def q_values_without_bound(run: Tape) -> None:
    """Future rewards count more than present ones from episode 100 on, without a target network."""
    q_learning(run, at=from_step(100, gamma=1.08, follow=False))


@fault("fresh", "reward_collapse accuracy_drop level_shift", 150, window=30)
def q_explores_again(run: Tape) -> None:
    """Exploration begins anew at episode 150, and does not end."""
    q_learning(run, at=from_step(150, epsilon=1e6))


@fault("fresh", "too_good level_shift", 180, window=20)
def student_temperature_lost(run: Tape) -> None:
    """The loss is no longer multiplied by the squared temperature from step 180 on."""
    student(run, at=from_step(180, temperature=1.0))


@fault("fresh", "scaler_collapse skipped_steps", 150, window=40)
def student_overflows(run: Tape) -> None:
    """Every step overflows from step 150 on: the loss scale is halved again and again."""
    student(run, at=from_step(150, huge=1e12))


@fault("fresh", "level_shift divergence not_learning spike", 180, window=50)
def student_decay_huge(run: Tape) -> None:
    """The weight decay is 20 from step 180 on."""
    student(run, at=from_step(180, decay=20.0))


@fault("fresh", "lr_schedule lr_zero", window=350, config={"max_steps": 350, "lr": 4e-3, "lr_scheduler_type": "cosine"})
def tags_schedule_twice(run: Tape) -> None:
    """The schedule is stepped twice in each step: the rate is zero in the middle and rises again."""
    tags(run, at=from_step(0, twice=True))


@fault("fresh", "too_good level_shift spike", 170, window=20)
def tags_padding_counts(run: Tape) -> None:
    """Padding is part of the loss from step 170 on, which makes it small."""
    tags(run, at=from_step(170, ignore=-100))


@fault("fresh", "data_stall slow_span periodic_stall", window=350, says="data_load")
def tags_loading_hiccups(run: Tape) -> None:
    """Now and then loading takes 250 ms, after step 100."""
    tags(run, at=from_step(0, every=23, load_ms=250.0))


@fault("fresh", "oscillation spike level_shift accuracy_drop divergence overfit", 12 * 20, window=60)
def pictures_sorted(run: Tape) -> None:
    """Pictures come sorted by class from epoch 12 on."""
    pictures(run, at=from_step(12, sorted=True))


@fault("fresh", "overfit not_learning generalization_gap plateau divergence level_shift absurd_loss", window=480)
def pictures_statistics_frozen(run: Tape) -> None:
    """Batch norm never updates the statistics that evaluations use."""
    pictures(run, at=from_step(0, momentum=0.0))


# Twenty healthy trainings.
add_healthy("fresh", "healthy_vae", vae)
add_healthy("fresh", "healthy_vae_annealed", vae, anneal=150, seed=1)
add_healthy("fresh", "healthy_contrast", contrast)
add_healthy("fresh", "healthy_contrast_batch_of_8", contrast, batch=8, seed=2)
add_healthy("fresh", "healthy_diffusion", diffusion)
add_healthy("fresh", "healthy_diffusion_no_warm_up", diffusion, warm=1, lr=5e-3, seed=3)
add_healthy("fresh", "healthy_graph", graph)
add_healthy("fresh", "healthy_graph_without_decay", graph, decay=0.0, seed=4)
add_healthy("fresh", "healthy_adapters", tuned)
add_healthy("fresh", "healthy_adapters_accumulated", tuned, accumulate=6, lr=6e-3, seed=5)
add_healthy("fresh", "healthy_tasks", tasks)
add_healthy("fresh", "healthy_tasks_batch_of_8", tasks, batch=8, seed=6)
add_healthy("fresh", "healthy_experts", experts)
add_healthy("fresh", "healthy_clicks", clicks)
add_healthy("fresh", "healthy_clicks_fast", clicks, lr=0.06, epochs=20, seed=7)
add_healthy("fresh", "healthy_q_learning", q_learning)
add_healthy("fresh", "healthy_student", student)
add_healthy("fresh", "healthy_tags", tags)
add_healthy("fresh", "healthy_tags_by_steps", tags, schedule="steps", seed=8)
add_healthy("fresh", "healthy_pictures", pictures, epochs=5, batch=20, every=2)
