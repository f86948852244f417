"""Sort a file of outliers into groups of look-alikes, so that a study can validate on groups that it does not train on.

    python benchmarks/outlier_groups.py outliers_train.npy lite0.safetensors study/outlier-groups.npz

The files of Tiny ImageNet that the study uses hold no classes. Their place is taken by 20 clusters (k-means) of the
unit features that an ImageNet classifier (timm's tf_efficientnet_lite0) gives each 32 x 32 image at 112 x 112 pixels.
"""

import sys
from pathlib import Path

import numpy as np
from sklearn.cluster import KMeans
from torch import Tensor

from cifar100_outliers import classifier, seen
from macs.data import load
from macs.data.spec import fingerprint

GROUPS = 20


def main(outliers: str, weights: str, out: str) -> None:
    images, (net, _) = load(outliers, "train"), classifier(weights)

    def features_of(pixels: Tensor) -> Tensor:
        features: Tensor = net.forward_head(net.forward_features(pixels), pre_logits=True)
        return features

    features = np.concatenate([part.numpy() for part in seen(features_of, images.pixels[:], 112)])
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    groups = KMeans(GROUPS, n_init=3, random_state=0).fit_predict(features).astype(np.uint8)
    np.savez_compressed(Path(out), groups=groups, fingerprint=np.array(fingerprint(images)), allow_pickle=False)
    print(
        f"{len(groups):,} images in {GROUPS} groups of {np.bincount(groups).min():,} to {np.bincount(groups).max():,}"
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
