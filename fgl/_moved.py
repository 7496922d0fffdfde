"""Old paths of public names. Each old path works until 0.4 and gives a warning."""

import difflib
import importlib
import sys
import warnings
from collections.abc import Callable
from typing import Any

# Names of other libraries -> what they are here.
MEANT = {
    "fedavg": "task.fedavg, or fgl.fedavg(model)",
    "fedbn": "fgl.methods.fedper(fedavg, shared=[...]) with all modules but the norms",
}
# Old package -> the module that has the names now -> names.
NOW = {
    "fgl.client_network": {
        "fgl.client_network.network": "distance_attention softmax_attention",
        "fgl.client_network.autoencoder": "encode init_encoder link_cost link_entropy link_loss "
        "link_probability",
        "fgl.client_network.grouping": "nearest_rows",
    },
    "fgl.data": {
        "fgl.data.hidden_nodes": "HiddenNodes hide_nodes",
        "fgl.data.partitions": "PROPORTIONS Skew community_clients cut_loss dirichlet_partition "
        "gpfl_partition ldg_partition leiden_partition louvain_partition major_label_partition "
        "metis_partition overlapping_partition partition_graph quantile_labels random_partition "
        "scaffold_partition sorted_partition union_graph",
        "fgl.data.partitions.graphs": "CutLoss",
        "fgl.data.readers.molecules": "Molecules",
        "fgl.data.readers.wiki_cs": "read_wiki_cs",
        "fgl.data.splits": "EdgeSplit balanced_classes class_capped_split edge_split fold_clients "
        "negative_edges pair_split public_split random_split scaffold_split split split_by_time "
        "stratified_folds subgraph_split windows with_negatives",
    },
    "fgl.data.partitions": {"fgl.data.partitions.graphs": "CutLoss"},
    "fgl.ego": {"fgl.ego.trees": "levels", "fgl.ego.uploads": "check_mashed"},
    "fgl.experiment": {"fgl": "compare plot", "fgl.federation": "best_round"},
    "fgl.federation": {
        "fgl.federation.executors.batch.train_cohort": "train_cohort",
        "fgl.federation.round": "num_participants",
    },
    "fgl": {},
    "fgl.losses": {"fgl.losses.reconstruction_loss": "dense_reconstruction"},
    "fgl.methods": {},
    "fgl.metrics": {
        "fgl.metrics.classes": "class_counts hit_counts on_host share",
        "fgl.metrics.ranking": "auc_and_average_precision",
    },
    "fgl.nn": {
        "fgl.nn.deep_neighbours": "DeepEncoder DeepGenerator FusedSAGE",
        "fgl.nn.node_generator": "NodeGenerator",
        "fgl.nn.observe": "outputs",
        "fgl.nn.pair_weights": "PairWeights",
        "fgl.nn.sage": "child_mean",
    },
    "fgl.privacy": {
        "fgl.privacy.clip": "clipped_gradient",
        "fgl.privacy.accountant": "composed_epsilon",
        "fgl.privacy.fixed_point": "decode encode largest_weight wrapped_sum",
        "fgl.privacy.gaussian": "on_grid",
    },
    "fgl.properties": {
        "fgl.properties.encodings": "walk_returns",
        "fgl.properties.measures": "PROPERTIES",
    },
    "fgl.pseudo": {"fgl.pseudo.graph": "project", "fgl.pseudo.quality": "describe"},
    "fgl.sparse": {
        "fgl.sparse.batched_matrix": "MatrixStack",
        "fgl.sparse.batched_pattern": "Member",
        "fgl.sparse.gather": "add_rows below_each_other",
        "fgl.sparse.matrix": "rows_of",
        "fgl.sparse.pattern": "Pattern",
        "fgl.sparse.precision": "full_precision",
        "fgl.sparse.rows": "pair_sum widened",
    },
    "fgl.tasks": {},
    "fgl.transforms": {
        "fgl.transforms.attacks": "flipped_labels heavy little_is_enough negated_models noise",
    },
}


def homes(room: str) -> dict[str, str]:
    """Return the new module of each name that has moved out of a package.

    Example:
        >>> homes("fgl.losses")
        {'dense_reconstruction': 'fgl.losses.reconstruction_loss'}
    """
    return {name: home for home, names in NOW[room].items() for name in names.split()}


def keep_old_paths() -> None:
    """Add a `__getattr__` to each package in `NOW`; it finds moved names and warns about them."""
    for room in NOW:
        module = sys.modules[room]
        vars(module)["__getattr__"] = _finder(room, vars(module).get("__getattr__"))


def _finder(room: str, other: Callable[[str], Any] | None) -> Callable[[str], Any]:
    names = homes(room)

    def find(name: str) -> Any:
        if name in names:
            warnings.warn(
                f"{room}.{name} is deprecated and goes in 0.4; write {names[name]}.{name}",
                DeprecationWarning,
                stacklevel=2,
            )
            return getattr(importlib.import_module(names[name]), name)
        if other is not None:
            return other(name)
        paths = {
            each.lower(): f"{place}.{each}"
            for place in ("fgl.methods", "fgl", room)
            for each in sys.modules[place].__all__
        }
        nearest = difflib.get_close_matches(name.lower(), paths, n=1, cutoff=0.7)
        path = MEANT.get(name.lower(), paths[nearest[0]] if nearest else "")
        meant = f": did you mean {path}?" if path else ""
        raise AttributeError(f"module {room!r} has no attribute {name!r}{meant}")

    return find
