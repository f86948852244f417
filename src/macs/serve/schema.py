"""The service's answers, as its OpenAPI document describes them.

The fields are the contract with the page and other clients: new ones may be added, but none is renamed or removed.
"""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class ImageVerdict(BaseModel):
    """The detector's verdict on one image."""

    model_config = ConfigDict(populate_by_name=True)

    name: str | None = Field(description="as it was sent; null where none was")
    class_name: str = Field(alias="class", description="the class that the image looks like, OOD or not")
    index: int = Field(description="the number of that class")
    confidence: float | None = Field(description="higher means ID; null where the network gave no finite number")
    p_value: float | None = Field(description="rank among the calibration images; null where the detector kept none")
    threshold: float = Field(description="the image is ID if its confidence reaches this")
    is_ood: bool


class ImageFailure(BaseModel):
    """An image that has no verdict, and why."""

    name: str | None
    error: str = Field(description="one sentence")


class PredictAnswer(BaseModel):
    """One entry per image, in the order in which they were sent."""

    images: list[ImageVerdict | ImageFailure]
    request_id: str


class Failure(BaseModel):
    """Every answer that is not a success."""

    error: str = Field(description="one sentence: what was wrong and what to do")
    request_id: str


class CalibrationAnswer(BaseModel):
    images: int = Field(description="ID images that the thresholds were calibrated on")
    confidences: list[float] = Field(description="about 50 quantiles of their confidences, from 0 to 1; may be empty")


class LimitsAnswer(BaseModel):
    images: int = Field(description="in one request")
    bytes: int = Field(description="of a request's body")
    pixels: int = Field(description="of one image")


class DetectorAnswer(BaseModel):
    """The detector that answers, as `macs inspect` describes its file."""

    network: str
    score: str
    classes: list[str]
    thresholds: list[float] = Field(description="one, or one per class")
    keep: float = Field(description="share of new ID images that the thresholds keep")
    calibration: CalibrationAnswer
    preparation: dict[str, Any]
    limits: LimitsAnswer
    version: str = Field(description="of macs, which serves it")
    checksum: str = Field(description="SHA-256 of the detector's file")


class DriftAnswer(BaseModel):
    """Whether recent p-values are still those of ID images; all fields are null if the detector has no p-values."""

    model_config = ConfigDict(extra="allow")

    alarm: bool | None
    evidence: float | None = Field(description="against it; at 1 the alarm is raised")
    images: int | None = Field(description="that the test has seen")
