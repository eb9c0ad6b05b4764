"""Everything Nightingale raises on purpose.

    NightingaleError
    ├── RequestError            the request cannot be spoken as it is; changing it helps
    │   ├── OptionError         a value out of its range, or one that this model does not have
    │   ├── TextError           empty, unreadable for this model, or too long for one utterance
    │   │   └── MarkupError     more mark-up than one text may have
    │   ├── LanguageError       a language this model does not speak
    │   ├── AudioError          a recording that cannot be used
    │   └── VoiceError          no such voice, or one that was made for another model
    ├── BusyError               as many requests as there may be; the same one will do later
    │   └── UnavailableError    workers fail again and again: none is started for a while
    ├── SpeechError             the model made nothing that can be heard
    ├── PlayerError             no program on this machine could play the sound
    ├── ResumeError             what an interrupted run kept belongs to another request
    ├── WorkerError             the process that owns the model is gone, or cannot start
    │   ├── PoisonRequestError  the worker died twice at the same step of this request
    │   └── ResumeMismatchError the next worker would not continue the stream with the same samples
    ├── AddressError            a host or port that cannot be listened on
    ├── MissingPackageError     an optional package is needed; the message holds the command
    └── WeightsError
        ├── NotPulledError      the files are not on this machine; the message holds the command
        ├── PullError           the download did not work
        ├── CorruptFileError    a file is not what it should be: truncated, tampered with, foreign
        └── LayoutError         the tensors in a file are not the ones the model has

Every message says what was given, what is allowed and what to do next.
"""


class NightingaleError(Exception):
    """Root of the tree: catch this to catch everything that Nightingale raises on purpose."""


class RequestError(NightingaleError):
    """The request cannot be spoken as it is."""


class OptionError(RequestError):
    """An option is out of its range, or the chosen model does not have it."""


class TextError(RequestError):
    """The text is empty, has no letter that the model knows, or is too long for one utterance."""


class MarkupError(TextError):
    """The mark-up of the text is beyond a limit: tags, depth, voices, or the length of pauses."""


class LanguageError(RequestError):
    """The chosen model does not speak this language."""


class AudioError(RequestError):
    """A recording cannot be used: not sound, damaged, too long or too short."""


class VoiceError(RequestError):
    """There is no such voice, or it was made for another model."""


class BusyError(NightingaleError):
    """There are as many requests already as there may be."""

    def __init__(self, message: str, retry_after_s: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s  # when it is worth asking again


class UnavailableError(BusyError):
    """Workers failed again and again, so the circuit breaker is open: none is started for now."""


class SpeechError(NightingaleError):
    """The model made nothing that can be heard."""


class PlayerError(NightingaleError):
    """No program on this machine could play the sound."""


class ResumeError(NightingaleError):
    """What an interrupted run kept was made by another request, or cannot be read."""


class WorkerError(NightingaleError):
    """The process that owns the model is gone, cannot start or cannot be understood."""


class PoisonRequestError(WorkerError):
    """The worker process died, or had to be killed, twice at the same step of this request."""


class ResumeMismatchError(WorkerError):
    """The next worker has another fingerprint: it would not continue with the same samples."""


class AddressError(NightingaleError):
    """A host or port cannot be listened on: in use, not permitted or not known."""


class MissingPackageError(NightingaleError):
    """An optional package is needed for this request and is not installed."""


class WeightsError(NightingaleError):
    """Something is wrong with a model's files."""


class NotPulledError(WeightsError):
    """The files of a model are not on this machine."""


class PullError(WeightsError):
    """A download did not work."""


class CorruptFileError(WeightsError):
    """A file is truncated, was changed, or is not of the kind that its name says."""


class LayoutError(WeightsError):
    """Tensors are missing, unknown or of another shape than the model's."""
