"""Train every night with Apache Airflow 3.

Install orch where the workers and the triggerer run: pip install 'orch-train[airflow]'
"""

from datetime import datetime, timedelta

from airflow.sdk import DAG, task

from orchestrator.airflow import OrchRunOperator

with DAG(
    "forecast",
    schedule="30 2 * * *",
    start_date=datetime(2026, 1, 1),
    catchup=False,
    max_active_runs=1,
    default_args={
        # A retry continues the run. Errors that it cannot solve fail the task at once, whatever stands here.
        "retries": 3,
        "retry_delay": timedelta(minutes=10),
    },
):
    train = OrchRunOperator(
        task_id="train",
        profile="/srv/forecast/orch.yaml",
        deferrable=True,  # the worker is free while the machine trains
    )

    @task
    def announce(run: dict[str, object]) -> None:
        """Use the result: run_id, reason, verdict, accepted, metrics, cost_usd, attempts and folder."""
        print(f"{run['run_id']}: {run['metrics']}, ${run['cost_usd']}")

    announce(train.output)
