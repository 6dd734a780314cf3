"""Makes the Grafana dashboards in deploy/grafana/dashboards.

    python -m deploy.dashboards            # write them
    python -m deploy.dashboards --check    # exit 1 if they differ from the tables

One module has the table of each dashboard: of each panel a title, a text for people, queries with
their legends, and a unit of Grafana.
"""
