"""Preparation of images, shared by training and serving."""


def images_of(raw):
    return (raw / 255.0).astype("float32")
