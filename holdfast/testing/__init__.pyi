from holdfast.testing.scripted import ScriptedModel as ScriptedModel
from holdfast.testing.scripted import call as call
from holdfast.testing.scripted import thought as thought
