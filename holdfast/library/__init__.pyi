from holdfast.library.holdfast import Holdfast as Holdfast
