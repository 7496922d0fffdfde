"""The tables of the papers, one file per paper, and pictures of some of their runs."""

from . import fedego, fedgl, fedvgae, fgssl, gpfl

TABLES = fgssl.TABLES | fedgl.TABLES | fedego.TABLES | fedvgae.TABLES | gpfl.TABLES
