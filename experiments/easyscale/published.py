"""What EasyScale published: typed in from the CSV files of its artifact, never computed."""

from collections.abc import Mapping

# model -> (seconds of a mini-batch without and with context switches), V100, 8 workers
FIGURE_11: Mapping[str, tuple[float, float]] = {
    "ShuffleNetv2": (0.3350, 0.3387),
    "ResNet50": (0.5078, 0.5064),
    "VGG19": (0.7755, 0.7760),
    "NeuMF": (0.01509, 0.01508),
    "YOLOv3": (0.4826, 0.4802),
    "BERT": (0.6511, 0.6510),
    "Electra": (0.6457, 0.6584),
    "Swin": (0.6029, 0.6040),
}
# model -> (DDP on 8 GPUs, mean worker, last worker), seconds of a mini-batch
FIGURE_13: Mapping[str, tuple[float, float, float]] = {
    "ShuffleNetv2": (0.4551, 0.3387, 0.3642),
    "ResNet50": (0.8717, 0.5064, 0.5122),
    "VGG19": (1.1385, 0.7760, 1.0182),
    "NeuMF": (0.03115, 0.01508, 0.02698),
    "YOLOv3": (0.6138, 0.4802, 0.5669),
    "BERT": (0.8292, 0.6510, 0.8447),
    "Electra": (0.8449, 0.6584, 0.8902),
    "Swin": (0.6664, 0.6040, 0.6438),
}
# model -> device type -> (without determinism, D1, D1+D2), seconds of a mini-batch
FIGURE_12: Mapping[str, Mapping[str, tuple[float, float, float]]] = {
    "ShuffleNetv2": {
        "V100": (0.2163, 0.2167, 0.4697),
        "P100": (0.3645, 0.3310, 0.8722),
        "T4": (0.4039, 0.4022, 0.6782),
    },
    "ResNet50": {"V100": (0.2503, 0.2688, 0.5860), "P100": (0.4150, 0.4393, 1.1595), "T4": (0.6097, 0.6591, 1.223)},
    "VGG19": {"V100": (0.2586, 0.3924, 1.1327), "P100": (0.3778, 0.6514, 2.0655), "T4": (0.5402, 0.9439, 2.2755)},
    "YOLOv3": {"V100": (0.4731, 0.4590, 0.5491), "P100": (0.7018, 0.7169, 0.9833), "T4": (0.8673, 0.8133, 1.0355)},
    "NeuMF": {"V100": (0.0103, 0.0105, 0.0107), "P100": (0.0135, 0.0130, 0.0127), "T4": (0.0109, 0.011, 0.0118)},
    "BERT": {"V100": (0.4413, 0.4406, 0.4390), "P100": (0.6069, 0.6007, 0.5998), "T4": (0.6811, 0.6819, 0.6661)},
    "Electra": {"V100": (0.4420, 0.4418, 0.4433), "P100": (0.6050, 0.6023, 0.5958), "T4": (0.6812, 0.6853, 0.6654)},
    "Swin": {"V100": (0.4132, 0.4114, 0.4289), "P100": (0.5935, 0.5945, 0.5941), "T4": (0.603, 0.5974, 0.6153)},
}
CONVOLUTIONAL = ("ShuffleNetv2", "ResNet50", "VGG19", "YOLOv3")
# ResNet50, one V100 of 32 GB: MB packed for 1 to 7 workers (then out of memory), and with logical workers at any number
FIGURE_10_PACKED_MB = (4803.0, 9602.0, 14403.0, 19202.0, 24003.0, 28802.0, 32425.0)
FIGURE_10_LOGICAL_MB = 4857.0
# policy -> (mean completion time s, makespan s); YARN-CS there runs one job at a time
FIGURE_14: Mapping[str, tuple[float, float]] = {
    "yarn-cs": (8904.97, 16560.0),
    "easyscale-homo": (1070.50, 6720.0),
    "easyscale-heter": (676.75, 6000.0),
}
# seconds -> devices held by homo and by heter, of 64
FIGURE_15: Mapping[int, tuple[int, int]] = {
    600: (14, 19),
    1200: (36, 59),
    1800: (49, 63),
    2400: (32, 64),
    3000: (31, 60),
    3600: (32, 57),
    4200: (36, 54),
    4800: (34, 46),
    5400: (32, 39),
    6000: (32, 6),
    6600: (32, 0),
}
FIGURE_15_MEANS = {"easyscale-homo": 32.4, "easyscale-heter": 46.1}
