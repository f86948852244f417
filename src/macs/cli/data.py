"""`macs data`: the datasets by name."""

from dataclasses import asdict

from cyclopts import App

from macs.cli._app import Data, Json, app, show

data_app = App(name="data", help="The datasets: what there is and what is on disk.")
app.command(data_app)


@data_app.command(name="list")
def data_list(*, data: Data = None, json: Json = False) -> None:
    """Every dataset by name: its role, its splits, and whether it is on disk."""
    from macs.data import catalog_rows
    from macs.tables import catalog_table

    rows = catalog_rows(data)
    show(catalog_table(rows), [asdict(row) for row in rows], json)
