"""Under which names the farm's trainings log: those of frameworks, and such as people write themselves."""

from dataclasses import dataclass, field
from random import Random

RUN_NAMES = {
    "loss_scale": ("loss_scale", "amp/scale", "train/loss_scale"),
    "skipped": ("skipped_steps", "amp/skipped", "skipped_iterations"),
    "stage": ("curriculum/level", "stage", "curriculum"),
    "throughput": ("samples_per_second", "perf/samples_per_sec", "throughput"),
    "memory": ("memory/rss_mb", "rss_mb", "system_ram_mb"),
    "weight_norm": ("weight_norm", "params-norm", "param_norm"),
}
PARTS = [
    "accuracy",
    "mae",
    "r2",
    "mse",
    "sigma",
    "bce_loss",
    "dice",
    "iou",
    "perplexity",
    "recon_loss",
    "kl_loss",
    "embedding_std",
    "alignment",
    "pos_dist",
    "neg_dist",
    "rmse",
    "load_balancing_loss",
    "max_load",
    "auc",
    "kd_loss",
    "ce_loss",
    "cls_loss",
    "reg_loss",
    "bits_per_dim",
    "margin",
    "rewards/chosen",
    "rewards/rejected",
    "rewards/margins",
    "rewards/accuracies",
    "logps/chosen",
    "tokens",
]
USUAL = ("loss", "lr", "grad_norm", "epoch", "throughput", "memory", "weight_norm", "step_time", "ema_loss", *PARTS)


@dataclass(slots=True)
class Style:
    """The names of a framework: patterns for training and for what is held out, and exact ones."""

    name: str
    training: str = "{n}"
    held_out: str = "val_{n}"
    exact: dict[str, str] = field(default_factory=dict)
    exact_held: dict[str, str] = field(default_factory=dict)
    epoch: str = "epoch"
    keys: tuple[str, ...] = USUAL
    always: tuple[str, ...] = ("loss", "ema_loss")
    prefix: str = ""
    only: bool = False

    def knows(self, key: str, keys: tuple[str, ...]) -> bool:
        """Whether a value is logged."""
        return key in keys and (not self.only or key in self.exact)

    def train(self, key: str) -> str:
        """The name of a value of training."""
        return self.prefix + self.exact.get(key, _filled(self.training, key))

    def held(self, key: str) -> str:
        """The name of a value of evaluation."""
        return self.prefix + self.exact_held.get(key, _filled(self.held_out, key))


def _filled(pattern: str, key: str) -> str:
    first, *others = key.replace("/", "_").split("_")
    camel = first + "".join(each.capitalize() for each in others)
    words = " ".join(each.capitalize() for each in (first, *others))
    return pattern.format(n=key, N=camel[0].upper() + camel[1:], c=camel, w=words)


SUPERVISED = (
    Style("lightning", "train_{n}", "val_{n}", {"accuracy": "train_acc", "lr": "lr-AdamW",
        "grad_norm": "grad_2.0_norm_total"}, {"accuracy": "val_acc"}),
    Style("lightning_step", "train_{n}_step", "val_{n}", {"lr": "lr-Adam/pg1", "grad_norm": "grad_norm"}),
    Style("hf", "{n}", "eval_{n}", {"lr": "learning_rate"}),
    Style("keras", "{n}", "val_{n}", {"lr": "learning_rate"}),
    Style("tensorboard", "{N}/train", "{N}/val", {"lr": "LR", "grad_norm": "GradNorm"}),
    Style("tensorboard_test", "{N}/train", "{N}/test", {"lr": "lr", "grad_norm": "grad/norm"}),
    Style("nanogpt", "train/{n}", "val/{n}", {"lr": "lr", "grad_norm": "train/gnorm"}),
    Style("torchtitan", "{n}", "validation_metrics/{n}", {"loss": "loss_metrics/global_avg_loss"}),
    Style("megatron", "{n}", "{n} validation", {"loss": "lm loss", "lr": "learning-rate",
        "grad_norm": "grad-norm"}, {"loss": "lm loss validation"}),
    Style("camel", "train{N}", "valid{N}", {"lr": "learningRate", "grad_norm": "gradNorm"}),
    Style("fastai", "train_{n}", "valid_{n}", {"lr": "lr_0"}, {"accuracy": "accuracy"}),
    Style("words", "Train {w}", "Test {w}", {"lr": "Learning Rate", "grad_norm": "Gradient Norm"}, epoch="Epoch"),
    Style("mm", "{n}", "val/{n}", {"loss": "loss", "lr": "lr"}, epoch="epoch"),
    Style("detectron", "{n}", "validation/{n}", {"loss": "total_loss"}),
    Style("fairseq", "train_inner/{n}", "valid/{n}", {"grad_norm": "train_inner/gnorm",
        "perplexity": "train_inner/ppl"}, {"perplexity": "valid/ppl"}),
    Style("timm", "train_{n}", "eval_{n}", {"lr": "lr", "grad_norm": "grad_norm"}, {"accuracy": "eval_top1"}),
    Style("slashes", "metrics/train/{n}", "metrics/dev/{n}", {"lr": "opt/lr", "grad_norm": "opt/grad_norm"}),
    Style("sub", "{n}/train", "{n}/valid", {"lr": "lr/group0", "grad_norm": "grad_norm/total"}),
    Style("bare", "{n}", "test_{n}", {"loss": "batch_loss", "accuracy": "acc"}, {"accuracy": "test_acc"}),
    Style("wandb", "train/{n}", "eval/{n}", {"lr": "train/learning_rate"}, epoch="train/epoch"),
)  # fmt: skip
POLICIES = (
    Style("sb3", exact={
        "reward": "rollout/ep_rew_mean", "ep_len": "rollout/ep_len_mean", "policy_loss": "train/policy_gradient_loss",
        "value_loss": "train/value_loss", "entropy": "train/entropy", "approx_kl": "train/approx_kl",
            "loss": "train/loss",
        "clip_frac": "train/clip_fraction", "explained_variance": "train/explained_variance",
            "lr": "train/learning_rate",
        "epsilon": "rollout/exploration_rate"}, exact_held={"reward": "eval/mean_reward"}),
    Style("cleanrl", exact={
        "reward": "charts/episodic_return", "ep_len": "charts/episodic_length", "policy_loss": "losses/policy_loss",
        "value_loss": "losses/value_loss", "entropy": "losses/entropy", "approx_kl": "losses/approx_kl",
        "clip_frac": "losses/clipfrac", "explained_variance": "losses/explained_variance",
            "lr": "charts/learning_rate",
        "q_mean": "losses/q_values", "loss": "losses/td_loss"}, exact_held={"reward": "eval/episodic_return"}),
    Style("rllib", exact={
        "reward": "env_runners/episode_return_mean", "ep_len": "env_runners/episode_len_mean",
        "policy_loss": "learners/default_policy/policy_loss", "value_loss": "learners/default_policy/vf_loss",
        "entropy": "learners/default_policy/entropy", "approx_kl": "learners/default_policy/mean_kl_loss",
        "explained_variance": "learners/default_policy/vf_explained_var", "lr": "learners/default_policy/curr_lr",
        "grad_norm": "learners/default_policy/gradients_default_optimizer_global_norm"},
        exact_held={"reward": "evaluation/env_runners/episode_return_mean"}),
    Style("tianshou", "loss/{n}", exact={
        "reward": "train/reward", "ep_len": "train/length", "loss": "loss", "policy_loss": "loss/clip",
        "value_loss": "loss/vf", "entropy": "loss/ent", "epsilon": "eps"}, exact_held={"reward": "test/reward"}),
    Style("mine", exact={
        "reward": "reward", "ep_len": "episodeLength", "policy_loss": "policyLoss", "value_loss": "valueLoss",
        "entropy": "entropy", "approx_kl": "kl", "clip_frac": "clipFraction", "explained_variance": "explainedVar",
        "grad_norm": "gradNorm", "epsilon": "epsilon", "q_mean": "qMean", "loss": "loss", "lr": "lr"},
        exact_held={"reward": "evalReward"}),
    Style("spinning", exact={
        "reward": "AverageEpRet", "ep_len": "EpLen", "policy_loss": "LossPi", "value_loss": "LossV", "loss": "LossQ",
        "entropy": "Entropy", "approx_kl": "KL", "clip_frac": "ClipFrac", "q_mean": "QVals"},
        exact_held={"reward": "TestEpRet"}),
)  # fmt: skip
ANSWERS = (
    Style("trl", exact={
        "loss": "loss", "reward": "reward", "reward_std": "reward_std", "frac_zero_std": "frac_reward_zero_std",
            "kl": "kl",
        "entropy": "entropy", "length": "completions/mean_length", "grad_norm": "grad_norm", "lr": "learning_rate"},
        exact_held={"reward": "eval_reward"}),
    Style("verl", exact={
        "loss": "actor/pg_loss", "reward": "critic/score/mean", "kl": "actor/kl_loss", "entropy": "actor/entropy",
        "length": "response_length/mean", "grad_norm": "actor/grad_norm", "lr": "actor/lr"},
        exact_held={"reward": "val-core/words/acc/mean@1"}),
    Style("openrlhf", exact={
        "loss": "policy_loss", "reward": "reward", "kl": "kl", "entropy": "entropy_loss", "length": "response_length",
        "grad_norm": "actor_grad_norm", "lr": "actor_lr"}, exact_held={"reward": "eval/reward"}),
    Style("tinker", exact={
        "reward": "env/all/reward/total", "length": "env/all/ac_tokens_per_turn", "entropy": "optim/entropy",
        "kl": "kl_policy_base", "lr": "optim/lr", "frac_zero_std": "env/all/by_group/frac_all_bad"},
        exact_held={"reward": "test/env/all/reward/total"}),
    Style("mine", exact={
        "loss": "loss", "reward": "meanReward", "reward_std": "rewardStd", "kl": "klToRef",
            "entropy": "policyEntropy",
        "length": "answerLength", "grad_norm": "gnorm"}, exact_held={"reward": "heldOutReward"}),
)  # fmt: skip
JUDGED = (
    Style("dcgan", exact={"d_loss": "Loss_D", "g_loss": "Loss_G", "d_real": "D(x)", "d_fake": "D(G(z))",
        "fid": "fid"}, exact_held={"fid": "FID"}),
    Style("lightning", exact={"d_loss": "d_loss", "g_loss": "g_loss", "lr": "lr"}, exact_held={"fid": "val_fid"}),
    Style("stylegan", exact={"d_loss": "Loss/D/loss", "g_loss": "Loss/G/loss", "d_real": "Loss/scores/real",
        "d_fake": "Loss/scores/fake", "fid": "f"}, exact_held={"fid": "Metrics/fid50k"}),
    Style("mine", exact={"d_loss": "discLoss", "g_loss": "genLoss", "fake_std": "fakeStd",
        "grad_norm": "genGradNorm", "d_grad_norm": "discGradNorm", "d_real": "realScore", "d_fake": "fakeScore"}),
)  # fmt: skip
POLICY_NAMES = {"ppo": POLICIES, "dqn": POLICIES, "bandit": POLICIES, "grpo": ANSWERS, "gan": JUDGED}


def names_of(d: Random, sort: str) -> Style:
    """Draw the names for a sort of training."""
    if sort == "supervised":
        style = d.choice(SUPERVISED)
        picked = Style(style.name, style.training, style.held_out, style.exact, style.exact_held, style.epoch)
    else:
        style = d.choice(POLICY_NAMES[sort])
        always = ("reward",) if sort != "gan" else ("d_loss", "g_loss")
        keys = (*style.exact, "throughput", "memory", *style.exact_held)
        picked = Style(style.name, style.training, style.held_out, style.exact, style.exact_held, keys=keys,
                       always=always, only=True)  # fmt: skip
    if d.random() < 0.08:
        picked.prefix = d.choice(["exp3/", "fold_0/", "model_a/", "run/"])
    return picked
