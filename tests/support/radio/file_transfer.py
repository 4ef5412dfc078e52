"""A weight-transfer backend for vLLM's refit API that reads its chunks from files.

vLLM's own backends need CUDA. This one does what they do beside the transfer.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from tests.support import vllm_internals


@dataclass
class InitInfo(vllm_internals.WeightTransferInitInfo):
    pass


@dataclass
class UpdateInfo(vllm_internals.WeightTransferUpdateInfo):
    path: str = ""


class FileEngine(vllm_internals.WeightTransferEngine):
    init_info_cls = InitInfo
    update_info_cls = UpdateInfo

    def init_transfer_engine(self, init_info):
        pass

    def start_weight_update(self):
        vllm_internals.start_refit(self.model, self.device)

    def update_weights(self, update_info):
        if isinstance(update_info, dict):
            update_info = self.parse_update_info(update_info)
        self.model.load_weights(torch.load(update_info.path, map_location=self.device))

    receive_weights = update_weights

    def finish_weight_update(self):
        vllm_internals.finish_refit(self.model, self.model_config, self.device)

    def shutdown(self):
        pass

    @staticmethod
    def trainer_send_weights(iterator, trainer_args):
        raise NotImplementedError


def register():
    vllm_internals.WeightTransferEngineFactory.register_engine("files", FileEngine)
