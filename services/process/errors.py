"""The errors of accelbind: one tree, the asker's fault apart from the world's.

AccelbindError
├── AskerError             what was asked can't be done as it is; asking again changes nothing
│   ├── InvalidName        a resource name, interface id or AFU id that is not one
│   ├── InvalidQuantity    a quantity that Kubernetes would not read, or not as a count
│   ├── InvalidMapping     an AcceleratorFunction or FpgaRegion that can't be used
│   ├── InvalidReview      an AdmissionReview that can't be answered with a review
│   ├── InvalidManifest    a manifest without a pod that could be judged
│   ├── InvalidBitstream   a file that is no bitstream, or not whole, or another one than its name
│   ├── InvalidSettings    flags, environment variables or a settings file that don't fit
│   └── NotAllowed         a container may not have what it is about to be given
│       └── NotMapped          since its namespace doesn't map it
└── WorldError             what was asked is fine, the world is not; asking again may help
    ├── StorageError       the bitstreams kept on a node: missing, unreadable, no room
    │   └── BitstreamMissing   there is none for this function
    ├── HardwareError      a card, a port or their files
    │   ├── DeviceBusy     somebody else has it, or is at work on it
    │   ├── DeviceGone     it isn't there, or not any more
    │   ├── DeviceHung     it doesn't answer in time
    │   └── DeviceRefused  it does answer: no, or not what it should
    ├── KubeletError       the kubelet, its sockets, its checkpoint
    ├── HookMissing        the container runtime doesn't call our OCI hook, or can't find it
    ├── ClusterError       the API server
    ├── CertificateError   keys and certificates
    └── TooSlow            everything that had to be done until then took too long

Each boundary translates once: AdmissionReview status in `webhook`, gRPC code in `plugin`, exit
code in `accelbind`. The text of an error is a sentence for a person: what is wrong, and what to do.
"""


class AccelbindError(Exception):
    """Root of every error that accelbind raises on purpose."""


class AskerError(AccelbindError):
    """What was asked can't be done as it is."""


class InvalidName(AskerError):
    """A resource name, interface id or AFU id that is not one."""


class InvalidQuantity(AskerError):
    """A quantity that Kubernetes would not read, or not as a whole number of units."""


class InvalidMapping(AskerError):
    """An AcceleratorFunction or FpgaRegion that can't be used."""


class InvalidReview(AskerError):
    """An AdmissionReview that can't be read well enough to answer with a review."""


class InvalidManifest(AskerError):
    """A manifest without a pod that could be judged."""


class InvalidBitstream(AskerError):
    """A file that is no bitstream, or not whole, or not the one that its name says."""


class InvalidSettings(AskerError):
    """Flags, environment variables or a settings file that don't fit."""


class NotAllowed(AskerError):
    """A container may not have what it is about to be given."""


class NotMapped(NotAllowed):
    """A container may not have what its namespace doesn't map."""


class WorldError(AccelbindError):
    """What was asked is fine, the world is not."""


class StorageError(WorldError):
    """The bitstreams that a node keeps, and the folder they are in."""


class BitstreamMissing(StorageError):
    """There is no bitstream for a function."""


class HardwareError(WorldError):
    """A card, a port, or the files that describe them."""


class DeviceBusy(HardwareError):
    """Somebody else has the device, or is at work on its card."""


class DeviceGone(HardwareError):
    """The device isn't there, or not any more."""


class DeviceHung(HardwareError):
    """The device doesn't answer in time."""


class DeviceRefused(HardwareError):
    """The device refuses, or doesn't show what it should."""


class KubeletError(WorldError):
    """The kubelet, its sockets or its checkpoint."""


class HookMissing(WorldError):
    """The container runtime doesn't call the OCI hook, or can't find it."""


class ClusterError(WorldError):
    """The API server."""


class CertificateError(WorldError):
    """Keys and certificates."""


class TooSlow(WorldError):
    """What had to be done until a moment has taken too long as a whole."""
