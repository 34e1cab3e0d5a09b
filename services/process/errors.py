"""The errors of accelbind: one tree, which separates invalid input from failures outside.

Each boundary translates them once: to an AdmissionReview status in `webhook`, a gRPC code in
`plugin`, an exit code in `accelbind`.
"""


class AccelbindError(Exception):
    """Base class of all errors that accelbind raises deliberately."""


class InvalidInput(AccelbindError):
    """The request or input is invalid."""


class InvalidName(InvalidInput):
    """A resource name, interface id or AFU id that is not one."""


class InvalidQuantity(InvalidInput):
    """A quantity that Kubernetes can't read, or that isn't a whole number of units."""


class InvalidMapping(InvalidInput):
    """A mapping that can't be used."""


class InvalidReview(InvalidInput):
    """An AdmissionReview that can't be read well enough to answer with a review."""


class InvalidManifest(InvalidInput):
    """A manifest without pods, or one that can't be read."""


class InvalidBitstream(InvalidInput):
    """A file that is not a complete bitstream, or another than its name says."""


class InvalidSettings(InvalidInput):
    """Invalid flags or environment variables."""


class NotAllowed(InvalidInput):
    """A container may not have the devices that it would get."""


class NotMapped(NotAllowed):
    """A container may not have devices that its namespace doesn't map."""


class ExternalFailure(AccelbindError):
    """Something outside accelbind failed."""


class StorageError(ExternalFailure):
    """The bitstreams on a node, or their folder."""


class BitstreamMissing(StorageError):
    """A function has no bitstream."""


class HardwareError(ExternalFailure):
    """A card, a port, or the files that describe them."""


class DeviceBusy(HardwareError):
    """Another process uses the device or its card."""


class DeviceGone(HardwareError):
    """The device is missing or was removed."""


class DeviceHung(HardwareError):
    """The device doesn't answer in time."""


class DeviceRefused(HardwareError):
    """The device refuses a request, or shows unexpected values."""


class KubeletError(ExternalFailure):
    """The kubelet, its sockets or its checkpoint."""


class KubeletAbsent(KubeletError):
    """No kubelet listens on its socket."""


class HookMissing(ExternalFailure):
    """The container runtime doesn't call the OCI hook, or can't find it."""


class ClusterError(ExternalFailure):
    """The API server."""


class CertificateError(ExternalFailure):
    """Keys and certificates."""


class TooSlow(ExternalFailure):
    """The steps up to a deadline took too long together."""
