"""A weight-transfer backend for vLLM's refit API that reads its chunks from files.

vLLM's own backends need CUDA. This one does what they do beside the transfer.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from vllm.distributed.weight_transfer.base import (
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)
from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory


@dataclass
class InitInfo(WeightTransferInitInfo):
    pass


@dataclass
class UpdateInfo(WeightTransferUpdateInfo):
    path: str = ""


class FileEngine(WeightTransferEngine):
    init_info_cls = InitInfo
    update_info_cls = UpdateInfo

    def init_transfer_engine(self, init_info):
        pass

    def start_weight_update(self):
        from vllm.model_executor.model_loader.reload import initialize_layerwise_reload

        with torch.device(self.device):
            initialize_layerwise_reload(self.model)

    def update_weights(self, update_info):
        if isinstance(update_info, dict):
            update_info = self.parse_update_info(update_info)
        self.model.load_weights(torch.load(update_info.path, map_location=self.device))

    receive_weights = update_weights

    def finish_weight_update(self):
        from vllm.model_executor.model_loader.reload import finalize_layerwise_reload

        with torch.device(self.device):
            finalize_layerwise_reload(self.model, self.model_config)

    def shutdown(self):
        pass

    @staticmethod
    def trainer_send_weights(iterator, trainer_args):
        raise NotImplementedError


def register():
    WeightTransferEngineFactory.register_engine("files", FileEngine)
