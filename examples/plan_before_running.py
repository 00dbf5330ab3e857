"""Plan before running: what more rounds cost, without reading a record."""

import prismfl

print("rounds  sigma  epsilon  one round   sent")
for rounds in (1, 4, 16):
    plan = prismfl.plan(method="dp-fedavg", data="digits", sites=3, model="logreg", epsilon=2.0, rounds=rounds)
    print(
        f"{plan.rounds:6}  {plan.sigma:5.2f}  {plan.epsilon:7.3f}  {plan.epsilon_per_round:9.3f}  "
        f"{plan.bytes_up / 1000:4.0f} kB"
    )

print("The same budget over more rounds: more noise in each of them.")
print(f"What the last one would be charged: {plan.cost}")
for warning in plan.warnings:
    print(f"warning: {warning}")
