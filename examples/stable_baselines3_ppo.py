"""PPO on CartPole with Stable-Baselines3, recorded by one callback."""

from stable_baselines3 import PPO

from stepscope.integrations.stable_baselines3 import StepscopeCallback


def main(timesteps: int = 256) -> None:
    """Learn for a moment."""
    model = PPO("MlpPolicy", "CartPole-v1", n_steps=64, batch_size=32, n_epochs=1, device="cpu", seed=0)
    model.learn(timesteps, callback=StepscopeCallback(project="examples", name="sb3"))


if __name__ == "__main__":
    main()
