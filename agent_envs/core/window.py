"""A plain window for ``render_mode="human"``, by the standard library's tkinter."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import Any

import numpy as np

logger = logging.getLogger("agent_envs.visual")


class Window:
    """Shows pictures. Without a display (or tkinter) it says so once in the log and does nothing."""

    def __init__(self, title: str) -> None:
        self._root: Any = None
        try:
            import tkinter

            self._root = tkinter.Tk()
        except Exception as error:  # ImportError without tkinter, TclError without a display
            logger.warning("no window for render_mode='human' (%s); use 'rgb_array'", error)
            return
        self._root.title(title)
        self._label = tkinter.Label(self._root)
        self._label.pack()
        self._make = tkinter.PhotoImage

    def show(self, picture: np.ndarray) -> None:
        """Show uint8 (height, width, 3)."""
        if self._root is None:
            return
        import tkinter

        height, width, _ = picture.shape
        data = b"P6 %d %d 255\n" % (width, height) + picture.tobytes()
        try:
            self._photo = self._make(data=data, format="PPM")  # kept: tkinter holds no reference
            self._label.configure(image=self._photo)
            self._root.update()
        except tkinter.TclError:  # somebody closed the window: play goes on without it
            self._root = None

    def close(self) -> None:
        root, self._root = self._root, None
        if root is not None:
            with suppress(Exception):  # a TclError where it is gone already
                root.destroy()
