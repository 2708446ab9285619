"""Training as in TensorFlow 1: a graph, a session."""

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_eager_execution()
tf.set_random_seed(1)
values = np.load("values.npy")
given = tf.placeholder(tf.float32, (None, 16))
weights = tf.get_variable("weights", (16, 1))
loss = tf.reduce_mean(tf.square(tf.matmul(given, weights) - 1.0))
train = tf.train.GradientDescentOptimizer(0.1).minimize(loss)
with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    for _ in range(4):
        session.run(train, {given: values})
